"""A whole comparison, from the names of two sources to the decision: what the command `judge` calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.evaluation.gate.budget import Look, next_look
from tasks.gate.gate_split import digest_of, sketch_of
from tasks.judging import ledger
from tasks.judging.answers import AnswerSet, Drawing
from tasks.judging.measuring import Measurement, Missing, measure
from tasks.judging.preferences import JudgeServer, by_judge, by_people
from tasks.judging.problems import JudgedProblems, problems_of_sources, read_problems
from tasks.judging.sources import Source, answers_of, source_of
from tasks.judging.verdict import Judgement, JudgeSettings, compared, judge
from tasks.judging.verifiers import EXACT, Verifier, open_verifier


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared, and how."""

    champion: str
    """Source of the model that may be replaced, see `tasks.judging.sources`."""
    candidate: str
    data: Path | None = None
    """Problems with their expected answers; None: those that the sources name."""
    form: str = ""
    """Format of the problems; "": it is recognised."""
    columns: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    """Largest number of problems, evenly spaced; None: all."""
    verifier: str = ""
    """Verifier of texts; "": the sources' scores, or `exact_answer` where a source has none."""
    judge: JudgeServer | None = None
    """Language model that compares the answers; its preferences are the primary metric, if none is named."""
    preferences: Path | None = None
    """File of people's choices, likewise."""
    missing: Missing = "refuse"
    score_range: tuple[float, float] = (0.0, 1.0)
    settings: JudgeSettings = field(default_factory=JudgeSettings)
    drawing: Drawing = field(default_factory=Drawing)
    ledger: Path | None = None
    """File in which looks are counted."""
    registry: str = ""
    """Registered model on which looks are counted; it needs a configured tracking store."""
    save: Path | None = None
    """Folder for the answers of both sides."""

    @cached_property
    def sources(self) -> tuple[Source, Source]:
        """The recognised sources of champion and candidate.

        Raises:
            UserError: one is none.
        """
        return source_of(self.champion, "--champion"), source_of(self.candidate, "--candidate")


def compare(wanted: Comparison, model: Callable[[], str]) -> Judgement:
    """Compare two sources of answers.

    Args:
        wanted: the comparison.
        model: returns the registered model that a number or an alias alone means.

    Raises:
        UserError: a source, the problems or a setting is wrong. No look is spent then.
    """
    if wanted.ledger is not None and wanted.registry:
        raise UserError("--ledger and --registry: looks are counted in one place; name one of them")
    if wanted.judge is not None and wanted.preferences is not None:
        raise UserError("--judge and --preferences: each is a metric of its own; name one of them")
    for source in wanted.sources:
        if source.draws and wanted.data is None:
            raise UserError(f"{source.given}: a model needs problems to answer; --data names them")
    verifier = open_verifier(wanted.verifier) if wanted.verifier else None
    given = None
    if wanted.data is not None:
        given = read_problems(wanted.data, wanted.form, wanted.columns).evenly(wanted.limit)
    champion, candidate = _read(wanted.sources, given, wanted, model)
    if wanted.save is not None:
        for role, answers in (("champion", champion), ("candidate", candidate)):
            save(answers, wanted.save / f"{role}.jsonl")
    problems = given or problems_of_sources([champion, candidate]).evenly(wanted.limit)
    if wanted.judge is None and wanted.preferences is None:
        verifier = verifier or _default_verifier(champion, candidate)
    measured = measure(champion, candidate, problems, verifier, wanted.missing, wanted.score_range)
    if wanted.judge is not None:
        measured = by_judge(measured, wanted.judge)
    elif wanted.preferences is not None:
        measured = by_people(measured, wanted.preferences)
    settings, facts = wanted.settings, measured.preferences
    if facts is not None:
        settings = replace(
            settings, metric=settings.metric or facts.metric, also=tuple(dict.fromkeys((*settings.also, facts.metric)))
        )
    name = verifier.name if verifier is not None else ""

    def look(metric: str) -> Look:
        of_metric = facts.identity if facts is not None and metric == facts.metric else name
        return _look(measured, metric, of_metric, wanted)

    judgement = judge(
        measured,
        settings,
        look,
        ledger=str(wanted.ledger or "") or (f"the registry, on {wanted.registry}" if wanted.registry else ""),
        verifier=name,
    )
    if wanted.ledger is not None:
        ledger.note_decision(wanted.ledger, _identities(measured), judgement.verdict.look, judgement.decision)
    return judgement


def save(answers: AnswerSet, file: Path) -> None:
    """Write answers in the own format, from which they can be judged again."""
    rows = []
    numbers: dict[str, int] = {}
    for answer in answers.answers:
        key = answer.problem or answer.prompt
        row: dict[str, Any] = {"id": answer.problem} if answer.problem else {"prompt": answer.prompt}
        row |= {"sample": numbers.get(key, 0), "finished": answer.finished}
        row |= {} if answer.text is None else {"answer": answer.text}
        row |= {} if answer.tokens is None else {"tokens": answer.tokens}
        row |= {"scores": dict(answer.scores)} if answer.scores else {}
        numbers[key] = numbers.get(key, 0) + 1
        rows.append(json.dumps(row, ensure_ascii=False) + "\n")
    write_file(file, "".join(rows))


def _read(
    sources: Sequence[Source], problems: JudgedProblems | None, wanted: Comparison, model: Callable[[], str]
) -> list[AnswerSet]:
    """Read both sources; models of one architecture that answer here share an engine."""
    rows = problems.rows if problems is not None else ()
    with ExitStack() as opened:
        if any(source.draws_here for source in sources):
            from tasks.compute.shared_engine import shared_engine

            opened.enter_context(shared_engine())
        return [answers_of(source, rows, wanted.drawing, model) for source in sources]


def _default_verifier(champion: AnswerSet, candidate: AnswerSet) -> Verifier | None:
    """Return no verifier if both sides have a score in common, and otherwise the one of marked answers."""
    if set(champion.score_names) & set(candidate.score_names):
        return None
    return open_verifier(EXACT)


def _look(measured: Measurement, metric: str, verifier: str, wanted: Comparison) -> Look:
    gate = wanted.settings.gate
    what = compared(measured, metric, verifier)
    problems = _identities(measured)
    if wanted.registry:
        from tasks.tracking.looks import take_look

        return take_look(wanted.registry, digest_of(problems), sketch_of(problems), what, gate)
    if wanted.ledger is None:
        return next_look(0, 0.0, budget=gate.error_budget, looks=1)
    sources = (measured.champion.answers.source, measured.candidate.answers.source)
    return ledger.take_look(wanted.ledger, problems, what, gate, metric, *sources)


def _identities(measured: Measurement) -> list[str]:
    return [problem.identity for problem in measured.problems]
