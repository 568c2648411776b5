"""The problems on which two models are judged, and the assignment of answers to them, by id or by prompt."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from models.answers.answers import answer_key
from models.base.errors import UserError, listed, shortened
from models.datasets.data_files import data_files
from models.datasets.formats import FORMATS, columns_of, convert_row
from models.datasets.inspection import recognised_format
from models.datasets.normalise import normalise
from models.datasets.raw import RawRow, read_batches
from models.datasets.sources import is_of_kind
from tasks.judging.answers import AnswerSet, GivenAnswer

ID = "id"
"""Column of a problem's id; without it a problem's id is the number of its row, from 0, as in lm-eval."""


@dataclass(frozen=True)
class JudgedProblem:
    """A problem with its expected answer. A problem of the sources alone may have neither prompt nor answer."""

    id: str
    prompt: str = ""
    answer: str = ""
    level: int = 0
    tests: str = ""
    entry_point: str = ""
    system: str = ""

    @property
    def identity(self) -> str:
        """A text that is equal for the same problem in another export, as for the looks at a gate split."""
        if not self.prompt:
            return json.dumps([ID, self.id, answer_key(self.answer)])
        return json.dumps([normalise(self.prompt), answer_key(self.answer)])


@dataclass(frozen=True)
class Assigned:
    """The answers of a source by problem."""

    by_problem: Mapping[str, Sequence[GivenAnswer]]
    """Id of a problem -> its samples, in the order of the source."""
    unassigned: tuple[GivenAnswer, ...] = ()
    """Answers to other problems."""


@dataclass(frozen=True)
class JudgedProblems:
    """Problems without copies."""

    rows: tuple[JudgedProblem, ...]
    copies: int = 0
    """Rows that were left out because an earlier one is the same problem."""
    by_id: Mapping[str, JudgedProblem] = field(default_factory=dict)
    """Id -> problem, with those that `evenly` left out, so that their answers are recognised."""

    @classmethod
    def of(cls, rows: Iterable[JudgedProblem]) -> JudgedProblems:
        """Leave out copies: the test assumes independent problems. A copy's id means the first row of it.

        Raises:
            UserError: two different problems have one id.
        """
        first: dict[str, JudgedProblem] = {}
        by_id: dict[str, JudgedProblem] = {}
        count = 0
        for row in rows:
            count += 1
            kept = first.setdefault(row.identity, row)
            if by_id.setdefault(row.id, kept) is not kept:
                raise UserError(f"--data: two problems have the id {shortened(row.id, 40)!r}")
        return cls(tuple(first.values()), count - len(first), by_id)

    def evenly(self, limit: int | None) -> JudgedProblems:
        """Return at most `limit` of the problems, evenly spaced."""
        if limit is None or limit >= len(self.rows):
            return self
        chosen = tuple(self.rows[place * len(self.rows) // limit] for place in range(limit))
        return replace(self, rows=chosen)


def read_problems(path: Path, form: str = "", columns: Mapping[str, str] | None = None) -> JudgedProblems:
    """Read problems from a user's file or folder.

    Args:
        path: .jsonl, .json, .csv or .parquet, or a folder of these.
        form: format of the rows, see `rewardflow data inspect`; "": it is recognised.
        columns: field -> column, for columns with other names.

    Raises:
        UserError: the files cannot be read, are of no known format, or two problems have one id.
    """
    given = dict(columns or {})
    files = [file.path for file in data_files([path], "--data")]
    name = form or recognised_format([path], _question(files, given))
    if name == "kinds":  # a file with this name, or a folder with one for each kind
        name, files = "problems", [file for file in files if is_of_kind(file, "problems")]
        if not files:
            raise UserError(f"--data: {path}: a folder of kinds without a file problems.*")
    if name not in FORMATS or "problems" not in FORMATS[name].kinds:
        raise UserError(f"--format {name}: problems are read from {', '.join(sorted(FORMATS))}")
    if name != "gsm8k":
        given = dict(_question(files, given))
    first, present = _columns(files)
    read = columns_of(name, given, first, present)
    read.pop("split", None)
    unread = frozenset(present) - set(read.values())
    rows = (raw for batch in read_batches(files) for raw in batch.rows())
    return JudgedProblems.of(_problem(name, read, raw, number, unread) for number, raw in enumerate(rows))


def problems_of_sources(sets: Sequence[AnswerSet]) -> JudgedProblems:
    """Return the problems that the sources name, for answers that have scores or expected answers of their own.

    A problem without an id is identified by its prompt.

    Raises:
        UserError: two sources expect different answers to one problem.
    """
    rows: dict[str, JudgedProblem] = {}
    for answers in sets:
        for answer in answers.answers:
            key = answer.problem or normalise(answer.prompt)
            row = JudgedProblem(key, "" if answer.problem else answer.prompt, answer.expected)
            known = rows.setdefault(key, row)
            if known.answer and row.answer and known.answer != row.answer:
                raise UserError(f"{answer.place}: the problem {shortened(key, 40)!r} has two expected answers")
            if row.answer and not known.answer:
                rows[key] = row
    return JudgedProblems(tuple(rows.values()), 0, rows)


def assigned(answers: AnswerSet, problems: JudgedProblems) -> Assigned:
    """Assign answers to problems.

    An id counts if the answer's prompt, where it has one, contains that of the problem. Otherwise it is the problem
    whose prompt is the last in the answer's: earlier ones are examples.

    Raises:
        UserError: no answer is to one of the problems.
    """
    prompts, judged = _ByPrompt(problems.by_id.values()), {problem.id for problem in problems.rows}
    by_problem: dict[str, list[GivenAnswer]] = defaultdict(list)
    others: list[GivenAnswer] = []
    for answer in answers.answers:
        problem = problems.by_id.get(answer.problem or normalise(answer.prompt))
        if problem is None or not _agrees(problem, answer):
            problem = prompts.problem(answer.prompt)
        if problem is None:
            others.append(answer)
        elif problem.id in judged:
            by_problem[problem.id].append(answer)
    if not by_problem:
        example = answers.answers[0]
        named = f"the first has the id {shortened(example.problem, 40)!r}" if example.problem else "they have no id"
        raise UserError(
            f"{answers.source}: none of its {len(answers.answers):,} answers is to a problem of --data; {named}, the "
            f"data have {listed([row.id for row in problems.rows], 3)}"
        )
    return Assigned(by_problem, tuple(others))


class _ByPrompt:
    """Search for the problem whose prompt a text contains."""

    def __init__(self, problems: Iterable[JudgedProblem]) -> None:
        self._prompts = {normalise(problem.prompt): problem for problem in problems if problem.prompt}

    def problem(self, prompt: str) -> JudgedProblem | None:
        if not prompt:
            return None
        text = normalise(prompt)
        if text in self._prompts:
            return self._prompts[text]
        ends = {known: text.rfind(known) + len(known) for known in self._prompts if known in text}
        return self._prompts[max(ends, key=lambda known: (ends[known], len(known)))] if ends else None


def _agrees(problem: JudgedProblem, answer: GivenAnswer) -> bool:
    """Return whether an answer's prompt is that of a problem, as far as both are known."""
    return not problem.prompt or not answer.prompt or normalise(problem.prompt) in normalise(answer.prompt)


def _problem(form: str, read: Mapping[str, str], raw: RawRow, number: int, unread: frozenset[str]) -> JudgedProblem:
    row = convert_row(form, read, raw, unread).rows["problems"]
    texts = {name: str(row.get(name, "")) for name in ("prompt", "answer", "tests", "entry_point", "system")}
    if not texts["prompt"].strip():
        raise UserError(f"{raw.place}: the prompt is empty")
    return JudgedProblem(raw.text(ID).strip() or str(number), level=int(row.get("level", 0)), **texts)


def _columns(files: Sequence[Path]) -> tuple[RawRow, frozenset[str]]:
    """Return the first row, and the columns of all rows."""
    first: RawRow | None = None
    present: set[str] = set()
    for batch in read_batches(files):
        for raw in batch.rows():
            first = first or raw
            present.update(raw.values)
    assert first is not None, "files without rows are refused"
    return first, frozenset(present)


def _question(files: Sequence[Path], columns: Mapping[str, str]) -> Mapping[str, str]:
    """Return the columns, with `question` as the prompt of files that have no column of this name but that one."""
    _, present = _columns(files)
    if "prompt" in columns or "prompt" in present or "question" not in present:
        return columns
    return {**columns, "prompt": "question"}
