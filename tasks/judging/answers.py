"""Answers of a model to problems, wherever they come from: plain data that the readers of all sources
make; and the settings by which a model draws them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from models.base.errors import UserError, shortened

PARTS_BETWEEN = "\n\n"
"""Text between two messages of a prompt."""

EngineName = Literal["auto", "vllm", "transformers"]
MAX_TOKENS = 512
"""Longest answer of a model without a recipe, in tokens."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Settings of the answers that a model gives here or on a server."""

    samples: int = 1
    """Answers per problem."""
    temperature: float = 0.0
    """Sampling temperature; 0: the likeliest answer."""
    max_tokens: int | None = None
    """Longest answer, in tokens; None: that of the version's recipe, or MAX_TOKENS as far as the model has room."""
    seed: int = 0
    engine: EngineName = "auto"
    """Engine of a model that answers here."""
    system: str | None = None
    """System message; None: none, or that of the version's recipe."""
    template: str | None = None
    """Text around every prompt, with `{prompt}`; None: none, or that of the version's recipe."""
    key_variable: str = "REWARDFLOW_JUDGE_KEY"
    """Environment variable of a server's key."""


@dataclass(frozen=True, kw_only=True)
class GivenAnswer:
    """One sample: an answer of a model to a problem."""

    place: str
    """Where it was read, for messages: file and line."""
    problem: str = ""
    """Id of the problem; empty if only the prompt identifies it."""
    prompt: str = ""
    expected: str = ""
    """Expected answer, if the source has it."""
    text: str | None = None
    """What the model wrote; None: the source has scores alone."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Metric -> value; NaN for a score that the source has no value for."""
    finished: bool = True
    """Whether the text ended by itself and was not cut."""
    tokens: int | None = None
    """Length in tokens; None: unknown."""


@dataclass(frozen=True)
class AnswerSet:
    """All answers of one source."""

    source: str
    """The source as the user named it."""
    kind: str
    """Kind of the source, such as `answers`, `lm-eval`, `model folder`."""
    answers: tuple[GivenAnswer, ...]
    notes: tuple[str, ...] = ()
    """Facts for readers, one sentence each."""

    @property
    def digest(self) -> str:
        """Hash of the content, independent of the order of the rows: equal answers are one candidate."""
        rows = sorted(
            json.dumps([a.problem or a.prompt, a.text, sorted(a.scores.items()), a.finished]) for a in self.answers
        )
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]

    @property
    def has_texts(self) -> bool:
        """Whether every answer has its text."""
        return all(answer.text is not None for answer in self.answers)

    @property
    def score_names(self) -> list[str]:
        """Metrics that any answer has a value of, in order of appearance."""
        return list(dict.fromkeys(name for answer in self.answers for name in answer.scores))


def text_of(content: Any) -> str:
    """Return the text of a message's content: a text, or a list of parts of which the texts are joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = [part.get("text", "") if isinstance(part, Mapping) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def prompt_of(prompt: Any) -> str:
    """Return a prompt as one text: a text as it is, or the contents of its messages."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        texts = [text_of(message.get("content")) for message in prompt if isinstance(message, Mapping)]
        return PARTS_BETWEEN.join(text for text in texts if text)
    return prompt if isinstance(prompt, str) else ""


def completion_of(completion: Any) -> str | None:
    """Return the text of a completion: a text as it is, or the last message of the assistant; None without a text."""
    if completion is None or isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence):
        turns = [turn for turn in completion if isinstance(turn, Mapping) and turn.get("role") == "assistant"]
        return text_of(turns[-1].get("content")) if turns else None
    return None


def score_of(value: Any, name: str, place: str) -> float:
    """Return a score as a number: numbers, yes or no, the mean of a list of these; NaN for null.

    Raises:
        UserError: the value is something else.
    """
    if value is None:
        return float("nan")
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return sum(score_of(each, name, place) for each in value) / len(value)
    raise UserError(f"{place}: the score '{shortened(name)}' is {shortened(value, 40)!r}, not a number")


def id_of(value: Any, place: str) -> str:
    """Return a problem's id as text.

    Raises:
        UserError: it is neither a text nor a whole number.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise UserError(f"{place}: the id is {shortened(value, 40)!r}, not a text or a whole number")
