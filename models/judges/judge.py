"""What a judge is: it answers questions in text, as often as votes are wanted."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from models.errors import UserError

LONGEST = 1_000_000
"""Characters of a question; a longer one is not asked."""


@dataclass(frozen=True)
class Answer:
    """What a judge wrote to one question, in one vote."""

    text: str
    """Critique and verdict."""
    finished: bool
    """Whether it ended by itself; one that was cut, or could not be asked, is no verdict."""
    log_probs: tuple[float, ...] | None = None
    """Log-prob of each of its tokens under the distribution it was drawn from, nats; None where nobody tells."""
    asked: tuple[int, ...] = ()
    """The question in the judge's own tokens; empty where nobody tells."""
    tokens: tuple[int, ...] = ()
    """The answer in the judge's own tokens, the end token included where it was reached; empty where nobody tells."""


MISSING = Answer("", False)
"""Of a question that got no answer."""


class GenerativeJudge(Protocol):
    """Somebody who reads and writes."""

    @abstractmethod
    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        """`votes` answers to each question, [questions][votes]. They hang on the run's seed, the question and the
        number of the vote, whatever else is asked; `greedy`: the likeliest answer. A question that got no answer has
        `MISSING`.

        Raises:
            models.gateway.client.NoAnswer: nobody answers at all.
        """
        ...

    def likelihoods(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float] | None]:
        """Log-likelihood of each text as the answer to each question, the mean over its tokens and its end, nats,
        [questions][texts]; None where question and answer are too long.

        Raises:
            UserError: whoever this is writes and tells no likelihoods.
        """
        raise UserError("the judge tells no likelihoods of given texts: set judge.path or judge.recipe")

    @property
    def temperature(self) -> float:
        """How its answers are drawn; 0: the likeliest."""
        return 1.0

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Answer with other weights of the same model from now on.

        Args:
            weights: by name, all of them; their values are copied.
            version: of these weights: with another one other answers are drawn.

        Raises:
            UserError: its weights are not on this machine.
        """
        raise UserError("the judge's weights are not on this machine: set judge.path or judge.recipe")

    def close(self) -> None:
        """Free what it holds."""
        return None


def askable(questions: Sequence[str]) -> list[str]:
    """The distinct questions that are asked: none that is empty or too long."""
    return [text for text in dict.fromkeys(questions) if text.strip() and len(text) <= LONGEST]


def encodable(text: str) -> str:
    """A text that every tokenizer and every server takes: a half of a character becomes a question mark."""
    return text.encode(errors="replace").decode()


def vote_seed(seed: int, question: str, vote: int, version: int = 0) -> int:
    """Of the random points of a vote, in [0, 2^63); `version`: of the judge's weights, 0: those it was opened with."""
    whose = f"{seed} version {version}" if version else f"{seed}"
    digest = hashlib.sha256(f"{whose} vote {vote} {question}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
