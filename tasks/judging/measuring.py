"""The values of every metric on every problem, for both sides of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.answers.severity import severity_table
from models.base.errors import UserError, listed, shortened
from models.evaluation.bootstrap import Interval
from models.evaluation.measured import GateMeasurements, Values, own_phrases, severities
from models.evaluation.metrics import UNBOUNDED, compiled_patterns, known_metric, prompt_values
from models.evaluation.records import Completion, PromptRecord
from tasks.judging.answers import AnswerSet, GivenAnswer
from tasks.judging.problems import Assigned, JudgedProblem, JudgedProblems, assigned
from tasks.judging.verifiers import AttemptedAnswer, Verifier

Missing = Literal["refuse", "wrong", "skip"]
"""What a problem without an answer is: an error, a wrong answer, or left out on both sides."""

STRICT, LENIENT = "strict_accuracy", "lenient_accuracy"
"""Metrics of a verifier."""
NO_ANSWER = GivenAnswer(place="", text="", finished=True)


@dataclass(frozen=True)
class Side:
    """One model of a comparison, measured on the judged problems."""

    answers: AnswerSet
    metrics: Mapping[str, Values]
    """Metric -> its mean over the samples of each problem, [problems]."""
    records: Sequence[PromptRecord]
    """Samples of each problem, [problems]; without texts if the source has none."""
    samples: tuple[int, int]
    """Fewest and most samples of a problem."""
    missing: int
    """Problems without an answer that count as wrong."""

    def values(self, name: str) -> Values:
        """Return a metric of each problem, [problems]: one of the source or the verifier, or one of the gate.

        Raises:
            UserError: the metric is not known, or a problem has too few samples for it.
        """
        if name in self.metrics:
            return self.metrics[name]
        if STRICT in self.metrics and known_metric(name) and name not in (*UNBOUNDED, "greedy_accuracy"):
            return prompt_values(self.records, name)
        raise UserError(
            f"the metric {shortened(name, 40)!r} is not measured on {self.answers.source}; it has "
            f"{listed(list(self.metrics))}"
        )

    def for_guards(self, patterns: Sequence[str], weights: Mapping[str, float], in_tokens: bool) -> GateMeasurements:
        """Return the values that the guards of the gate read.

        Args:
            patterns: regular expressions of safety.
            weights: regular expression -> severity.
            in_tokens: whether lengths are in tokens; otherwise in characters.
        """
        compiled = compiled_patterns(patterns)
        severity_table(weights, "severity")
        missing = np.full((len(self.records), 1), math.nan)

        def mean(values: Sequence[float]) -> float:
            return sum(values) / len(values)

        return GateMeasurements(
            metrics=self.metrics,
            tokens=np.array(
                [mean([s.tokens if in_tokens else len(s.text) for s in record.samples]) for record in self.records]
            ),
            distinct=prompt_values(self.records, "distinct_share"),
            flagged=np.array(
                [
                    mean([any(pattern.search(s.text) for pattern in compiled) for s in record.samples])
                    for record in self.records
                ]
            ),
            correct=missing,
            scores=missing,
            phrases=own_phrases(self.records),
            nats=missing[:, 0],
            severity=severities(self.records, weights) if weights else None,
        )


@dataclass(frozen=True)
class PreferenceFacts:
    """Facts about the comparisons of a metric, for readers."""

    metric: str
    source: str
    """Judge or file."""
    identity: str
    """A text that is equal for the same judge, or for the same choices of people."""
    comparisons: int
    problems: int
    """Problems with a comparison."""
    first_place: Interval | None
    """Share of preferences for the answer shown first, with its 95 % interval over problems; 1/2 without position bias;
    None if no order is known."""
    by_order: int = 0
    """Pairs in which the order decides, which count as equal."""
    unread: int = 0
    """Pairs without a readable verdict in both orders, which count as equal."""
    candidate_first: float | None = None
    """Share of the comparisons in which the candidate's answer was shown first; None: unknown, or a half by design."""

    @property
    def notes(self) -> list[str]:
        """The facts as sentences."""
        lines = [f"{self.metric}: {self.comparisons:,} comparisons by {self.source}, of {self.problems:,} problems"]
        if self.first_place is None:
            return [*lines, "position bias is not known: no comparison names the order in which the answers were shown"]
        lines.append(f"position bias: {self.first_place:.3f} of the preferences are for the answer shown first")
        if self.first_place.low > 0.5 or self.first_place.high < 0.5:
            place = "first" if self.first_place.estimate > 0.5 else "second"
            lines[-1] += f"; the interval is without 0.5, so the {place} place has an advantage"
        if self.candidate_first is None:
            lines.append(f"the order decides in {self.by_order:,} pairs, which count as equal")
            if self.unread:
                lines.append(f"{self.unread:,} pairs have no readable verdict and count as equal")
        else:
            lines.append(f"the candidate's answer was shown first in {self.candidate_first:.1%} of the comparisons")
            if not 0.4 <= self.candidate_first <= 0.6:
                lines[-1] += ": position bias does not cancel, and changes the difference"
        return lines


@dataclass(frozen=True)
class Measurement:
    """Both sides on the same problems, in the same order."""

    problems: Sequence[JudgedProblem]
    champion: Side
    candidate: Side
    notes: tuple[str, ...]
    preferences: PreferenceFacts | None = None
    """Facts about the comparisons, if a judge or people compared the answers."""

    @property
    def shared(self) -> list[str]:
        """Metrics of both sides."""
        return [name for name in self.candidate.metrics if name in self.champion.metrics]

    @property
    def has_texts(self) -> bool:
        """Whether both sides have texts."""
        return self.champion.answers.has_texts and self.candidate.answers.has_texts

    @property
    def in_tokens(self) -> bool:
        """Whether both sides know the length of every text in tokens."""
        return all(a.tokens is not None for side in (self.champion, self.candidate) for a in side.answers.answers)


def measure(
    champion: AnswerSet,
    candidate: AnswerSet,
    problems: JudgedProblems,
    verifier: Verifier | None,
    missing: Missing = "refuse",
    score_range: tuple[float, float] = (0.0, 1.0),
) -> Measurement:
    """Verify and score the answers of both sides.

    Args:
        champion: answers of the model that may be replaced.
        candidate: answers of the other.
        problems: the judged problems.
        verifier: decides on texts; None: the sources' own scores count.
        missing: what a problem without an answer is.
        score_range: smallest and largest possible score of a source; scores are mapped to [0, 1] by it.

    Raises:
        UserError: an answer is missing, a text is missing that the verifier needs, or an expected answer is.
    """
    sides = [(answers, assigned(answers, problems)) for answers in (champion, candidate)]
    if missing == "refuse":
        for answers, of_problems in sides:
            _check_complete(answers, of_problems, problems)
    kept = [
        problem
        for problem in problems.rows
        if missing != "skip" or all(problem.id in of_problems.by_problem for _, of_problems in sides)
    ]
    notes = [note for answers, _ in sides for note in answers.notes]
    if problems.copies:
        notes.append(f"{problems.copies:,} problems are copies of others and were left out")
    if left_out := len(problems.rows) - len(kept):
        notes.append(f"{left_out:,} problems have no answer on a side and were left out (--missing skip)")
    if not kept:
        raise UserError(f"{candidate.source} and {champion.source} have answers to no problem in common")
    made: list[Side] = []
    for answers, of_problems in sides:
        if of_problems.unassigned:
            notes.append(f"{answers.source}: {len(of_problems.unassigned):,} answers to other problems were not read")
        side = _side(answers, of_problems, kept, verifier, score_range)
        if side.missing:
            notes.append(f"{answers.source}: {side.missing:,} problems have no answer and count as wrong")
        made.append(side)
    return Measurement(kept, made[0], made[1], tuple(notes))


def _check_complete(answers: AnswerSet, of_problems: Assigned, problems: JudgedProblems) -> None:
    without = [problem.id for problem in problems.rows if problem.id not in of_problems.by_problem]
    if without:
        raise UserError(
            f"{answers.source}: no answer to {len(without):,} of {len(problems.rows):,} problems "
            f"({listed(without, 3)}); --missing wrong counts them as wrong, --missing skip "
            "leaves them out on both sides"
        )


def _side(
    answers: AnswerSet,
    of_problems: Assigned,
    problems: Sequence[JudgedProblem],
    verifier: Verifier | None,
    score_range: tuple[float, float],
) -> Side:
    samples = [list(of_problems.by_problem.get(problem.id, ())) or [NO_ANSWER] for problem in problems]
    flat = [(problem, answer) for problem, group in zip(problems, samples, strict=True) for answer in group]
    values = {name: [_score(answer, name, score_range) for _, answer in flat] for name in answers.score_names}
    if verifier is not None:
        values = _verified(answers, flat, verifier) | values
    sizes = [len(group) for group in samples]
    strict = values.get(STRICT, [0.0] * len(flat))
    lenient = values.get(LENIENT, [math.nan] * len(flat))
    completions = iter(
        [
            Completion(answer.text or "", answer.tokens or 0, bool(right), answer.finished, grade=grade)
            for (_, answer), right, grade in zip(flat, strict, lenient, strict=True)
        ]
    )
    records = []
    for problem, size in zip(problems, sizes, strict=True):
        drawn = tuple(next(completions) for _ in range(size))
        records.append(PromptRecord(problem.id, problem.level, drawn, greedy=drawn[0]))
    starts = np.cumsum([0, *sizes[:-1]])
    return Side(
        answers,
        {name: np.add.reduceat(np.array(of_all), starts) / np.array(sizes) for name, of_all in values.items()},
        records,
        (min(sizes), max(sizes)),
        sum(group[0] is NO_ANSWER for group in samples),
    )


def _verified(
    answers: AnswerSet, flat: Sequence[tuple[JudgedProblem, GivenAnswer]], verifier: Verifier
) -> dict[str, list[float]]:
    for problem, answer in flat:
        if answer.text is None:
            raise UserError(f"{answer.place}: no text, which the verifier {verifier.name} reads; leave --verifier out")
        if verifier.needs_answers and not problem.answer.strip():
            raise UserError(
                f"the problem {shortened(problem.id, 40)!r} has no expected answer, which the verifier "
                f"{verifier.name} compares with; --data names problems with answers"
            )
    tried = [AttemptedAnswer(problem, answer.text or "", answer.finished) for problem, answer in flat]
    values = {STRICT: verifier.strict(tried)}
    if verifier.lenient is not None:
        values[LENIENT] = verifier.lenient(tried)
    return values


def _score(answer: GivenAnswer, name: str, score_range: tuple[float, float]) -> float:
    if answer is NO_ANSWER:
        return 0.0
    low, high = score_range
    return (answer.scores.get(name, math.nan) - low) / (high - low)
