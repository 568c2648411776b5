"""Interface of a generative judge: a model that answers questions in text, with several votes if requested."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from models.base.errors import UserError

LONGEST = 1_000_000
"""Maximum length of a question, characters; a longer one is not sent and gets the answer `MISSING`."""


@dataclass(frozen=True)
class Answer:
    """The answer of a judge to one question, in one vote."""

    text: str
    """Critique and verdict."""
    finished: bool
    """Whether the answer ended by itself. If not, it was cut or the question was not sent: it has no
    verdict."""
    log_probs: tuple[float, ...] | None = None
    """Log-prob of each token of the answer under the distribution it was drawn from, nats; None if not known."""
    question_tokens: tuple[int, ...] = ()
    """Token ids of the question under the judge's tokenizer; empty if not known."""
    tokens: tuple[int, ...] = ()
    """Token ids of the answer under the judge's tokenizer, with the end token if it was reached; empty if not known."""


MISSING = Answer("", False)
"""The answer recorded for a question that got none."""


class GenerativeJudge(Protocol):
    """Interface of a model that answers questions in text, such as for a verdict on a completion."""

    @abstractmethod
    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        """Return `votes` answers to each question, [questions][votes].

        The answers depend on the run's seed, the question and the number of the vote, and not on the other questions.
        With `greedy`, the most likely answer is returned. A question that got no answer has `MISSING`.

        Raises:
            models.base.http_client.NoAnswer: no question got an answer.
        """
        ...

    def likelihoods(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float] | None]:
        """Return the log-likelihood of each text as the answer to each question, [questions][texts].

        It is the mean over the tokens of the text and its end token, in nats; None if question and answer together are
        too long.

        Raises:
            UserError: this judge does not provide likelihoods.
        """
        raise UserError("the judge returns no likelihoods of given texts: set judge.path or judge.recipe")

    @property
    def temperature(self) -> float:
        """Sampling temperature of the answers; 0: greedy."""
        return 1.0

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Replace the weights of the judge's model; later answers use the new ones.

        Args:
            weights: all weights of the same model, by name; their values are copied.
            version: number of these weights; another version draws other answers.

        Raises:
            UserError: the judge's weights are not on this machine.
        """
        raise UserError("the judge's weights are not on this machine: set judge.path or judge.recipe")

    def close(self) -> None:
        """Free the judge's resources."""
        return None


def askable(questions: Sequence[str]) -> list[str]:
    """Return the distinct questions that can be sent: not empty, and at most `LONGEST` characters."""
    return [text for text in dict.fromkeys(questions) if text.strip() and len(text) <= LONGEST]


def encodable(text: str) -> str:
    """Return the text with each unpaired surrogate replaced by a question mark, so that it can be encoded as UTF-8."""
    return text.encode(errors="replace").decode()


def vote_seed(seed: int, question: str, vote: int, version: int = 0) -> int:
    """Return the seed of a vote, in [0, 2^63); `version` is that of the judge's weights, 0 for the initial ones."""
    seed_text = f"{seed} version {version}" if version else f"{seed}"
    digest = hashlib.sha256(f"{seed_text} vote {vote} {question}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
