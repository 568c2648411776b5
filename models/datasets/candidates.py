"""Shapes whose rows hold scored completions: each prompt's completions become demonstrations and preference pairs.

    ultrafeedback   instruction, completions = list of {response, fine-grained_score or overall_score}
    helpsteer       prompt, response, helpfulness; several rows with one prompt
    kto             prompt, completion, label = true for a desirable completion; rows with one prompt belong together
    stepwise        prompt, completions = list of steps, labels = list of true and false; right if all steps are right

The best completion of a prompt is its demonstration and is preferred to every completion with a lower score. If several
are best, they share the lower ones in turn. A label states whether a completion is good by itself: an undesirable or
wrong completion is never a demonstration, and a desirable one needs no other to be one. A score only compares: without
a lower score for the same prompt, no completion is used. Completions that are in no row are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from models.base.errors import UserError, shortened
from models.base.strict_json import JsonError, parse_json
from models.datasets.raw import RawRow

SCORES = ("fine-grained_score", "overall_score", "score")
"""Keys of a completion's score, in the order of preference: the first that any completion of the row has."""
RESPONSES = ("response", "completion", "text")
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


class ScoredCompletion(NamedTuple):
    """A completion, as a row of its own, and its score."""

    raw: RawRow
    """The row; the column of the completion holds this one."""
    score: Decimal | None
    """Score, higher is better, 1 or 0 for a label; None if it is unknown."""


class CandidateRow(NamedTuple):
    """A row that completions of one prompt make."""

    chosen: ScoredCompletion
    rejected: ScoredCompletion | None
    """None: a demonstration without a pair."""
    demonstrates: bool
    """Whether `chosen` is a demonstration here; it is one in its first row only."""


@dataclass(frozen=True)
class CandidateShape:
    """The way in which rows hold completions."""

    completion: str
    """Field of the completion's column."""
    read: str
    """Name of the shape of the values: `rows`, `listed` or `steps`."""
    labels: bool
    """Whether the score is a label, which states whether a completion is good by itself."""
    grouped: bool
    """Whether rows with one prompt are read together."""

    def candidates(self, raw: RawRow, columns: Mapping[str, str]) -> list[ScoredCompletion]:
        """Return the completions of a row and of the rows read with it.

        Args:
            raw: the row.
            columns: field -> column.

        Raises:
            UserError: a score, a label or a list of completions has another form.
        """
        made: list[ScoredCompletion] = []
        for row in (raw, *raw.others):
            column = columns[self.completion]
            if self.read == "listed":
                made += _listed(row, column)
            elif self.read == "steps":
                text, right = _steps(row, column, columns["label"])
                made.append(_with_text(row, column, text, Decimal(right)))
            elif self.labels:
                made.append(
                    ScoredCompletion(row, Decimal(_label(row, columns["label"], row.values.get(columns["label"]))))
                )
            else:
                made.append(ScoredCompletion(row, _number(row, columns["score"], row.values.get(columns["score"]))))
        return made


def judge(candidates: Sequence[ScoredCompletion], *, labels: bool) -> list[CandidateRow]:
    """Return the rows that the completions of one prompt make; see the head of this file.

    Args:
        candidates: the completions.
        labels: whether a score of 1 means a completion that is good by itself, and 0 one that is not.
    """
    scores = [candidate.score for candidate in candidates if candidate.score is not None]
    if not scores:
        return []
    best = [candidate for candidate in candidates if candidate.score == max(scores)]
    lower = [candidate for candidate in candidates if candidate.score is not None and candidate.score < max(scores)]
    if (labels and max(scores) < 1) or (not labels and not lower):
        return []
    first = [CandidateRow(chosen, lower[at] if at < len(lower) else None, True) for at, chosen in enumerate(best)]
    return first + [CandidateRow(best[at % len(best)], lower[at], False) for at in range(len(best), len(lower))]


def _listed(raw: RawRow, column: str) -> list[ScoredCompletion]:
    """Return the completions of a list of mappings, or of a mapping of lists."""
    value = _value(raw, column)
    if isinstance(value, Mapping):
        lengths = {len(values) for values in value.values() if isinstance(values, Sequence)}
        if len(lengths) == 1:
            value = [{name: values[at] for name, values in value.items()} for at in range(lengths.pop())]
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise UserError(f"{raw.place}: column '{column}' is not a list of completions with a response and a score")
    key = next((name for name in RESPONSES if any(name in item for item in value)), None)
    score = next((name for name in SCORES if any(item.get(name) is not None for item in value)), None)
    if value and (key is None or score is None):
        lacks = f"none has {', '.join(RESPONSES if key is None else SCORES)}"
        raise UserError(f"{raw.place}: column '{column}': of the completions, {lacks}")
    return [
        _with_text(raw, column, item.get(str(key)), _number(raw, f"{column}[].{score}", item.get(str(score))))
        for item in value
    ]


def unread_keys(raw: RawRow, column: str) -> set[str]:
    """Return the keys of a list of completions that are not read, such as `completions[].model`."""
    value = _value(raw, column)
    items = value if isinstance(value, list) else [value]
    keys = {str(key) for item in items if isinstance(item, Mapping) for key in item}
    read = {next((name for name in names if name in keys), "") for names in (RESPONSES, SCORES)}
    return {f"{column}[].{key}" for key in keys - read}


def _steps(raw: RawRow, column: str, label: str) -> tuple[str, bool]:
    """Return the text of a list of steps, one in a line, and whether all are right."""
    steps, labels = _value(raw, column), _value(raw, label)
    if not isinstance(steps, list) or not isinstance(labels, list) or len(steps) != len(labels):
        raise UserError(f"{raw.place}: the columns '{column}' and '{label}' are not two lists of the same length")
    right = [_label(raw, label, value) for value in labels]
    return "\n".join(raw.as_text(step, column).strip("\n") for step in steps), all(right)


def _value(raw: RawRow, column: str) -> Any:
    """Return a value; the text of a list or mapping in JSON, as in CSV files, as this list or mapping."""
    value = raw.values.get(column)
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return parse_json(value)
        except JsonError:
            return value
    return value


def _with_text(raw: RawRow, column: str, text: Any, score: Decimal | None) -> ScoredCompletion:
    return ScoredCompletion(RawRow(raw.file, raw.number, {**raw.values, column: text}), score)


def _label(raw: RawRow, column: str, value: Any) -> bool:
    """Return a label: true, false, 1, 0, or one of these as text."""
    text = str(value).strip().casefold()
    if isinstance(value, (bool, int, float, str)) and text.removesuffix(".0") in (*TRUE, *FALSE):
        return text.removesuffix(".0") in TRUE
    raise UserError(f"{raw.place}: column '{column}' holds '{shortened(value, 40)}'; a label is true or false, 1 or 0")


def _number(raw: RawRow, column: str, value: Any) -> Decimal | None:
    """Return a score; None if there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal, type(None))):
        raise UserError(f"{raw.place}: '{column}' holds a {type(value).__name__}; a score is a number")
    text = raw.as_text(value, column).strip()
    if not text:
        return None
    try:
        score = Decimal(text)
    except InvalidOperation:
        raise UserError(f"{raw.place}: '{column}' holds '{shortened(text, 40)}'; a score is a number") from None
    if not score.is_finite():
        raise UserError(f"{raw.place}: '{column}' holds {text}; a score is a finite number")
    return score
