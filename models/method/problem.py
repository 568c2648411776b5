"""Problems: prompts with their expected answers, their tests, and the answers that the data contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from models.base.errors import UserError
from models.base.images import images_in

Origin = Literal[
    "policy", "greedy", "reference", "teacher", "guide", "explained", "refined", "relabelled", "demonstration",
    "chosen", "rejected",
]  # fmt: skip
"""Source of a completion.

policy, greedy, reference: an engine drew it, from the policy, at temperature zero, or from the reference
teacher: the frozen model that the policy is distilled from wrote it
guide: the policy continued the beginning of an answer that it did not write
explained: the policy wrote it knowing the answer
refined: the policy wrote it knowing an earlier answer and the feedback on it
relabelled: the policy wrote it for another prompt
demonstration, chosen, rejected: it is part of the data
"""
Reads = Literal["problems", "demonstrations", "preferences"]
"""Rows of the data that prompts are read from: problems, demonstrations, or preferences with their answers."""


@dataclass(frozen=True, eq=False)
class KnownAnswer:
    """An answer to a prompt that is part of the data. It is equal only to itself, as a rollout is."""

    origin: Origin
    completion: tuple[int, ...]
    """Token ids, the end token included, [tokens]."""
    text: str
    flaw: str = ""
    """Flaw of the answer according to the data; empty if there is none."""
    reference_log_probs: Tensor | None = None
    """Log-prob of each token under a reference that never moves, if it is known, [tokens], in nats, on the CPU."""


@dataclass(frozen=True)
class Problem:
    """A prompt with its expected answer and its tests."""

    id: str
    prompt: str
    answer: str = ""
    level: int = 0
    tokens: tuple[int, ...] = ()
    """The encoded prompt, [tokens]."""
    known: tuple[KnownAnswer, ...] = ()
    """Answers to the prompt in the data, if the recipe's source of rollouts reads them."""
    tests: str = ""
    """Code that decides whether an answer, which is code too, is right; empty if there is none."""
    entry_point: str = ""
    """Name of the function that the tests call."""
    system: str = ""
    """System message that the prompt begins with, followed by a blank line; empty if there is none."""


def texts_of(problems: Sequence[Problem]) -> tuple[list[str], list[str]]:
    """List the prompts of problems and their system messages, as `models.text.encoding.Codec.prompts` takes them."""
    return [problem.prompt for problem in problems], systems_of(problems)


def systems_of(problems: Sequence[Problem]) -> list[str]:
    """List the system message of each problem, [problems]."""
    return [problem.system for problem in problems]


def first_picture(problem: Problem, reader: str) -> str:
    """Return the name of the first picture of a problem's prompt.

    Args:
        problem: the problem.
        reader: what needs the picture, for the error message.

    Raises:
        UserError: the prompt has no picture.
    """
    names = images_in(problem.prompt)
    if not names:
        raise UserError(f"problem {problem.id}: {reader} needs a picture in the prompt")
    return names[0]
