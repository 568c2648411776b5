"""Inputs of joint decoding: the models and the added terms that choose the next token together.

    log p(token) = sum over the voices of weight * log p_voice(token) + sum over the terms of term(token) / temperature
                   + constant

A weight may be negative: a voice of weight -b divides by its distribution. A voice of weight 0 is not read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.engines.evicting import CacheBudget


@dataclass(frozen=True)
class Voice:
    """A model that takes part in the choice of the next token."""

    opened: Callable[[], AbstractContextManager[nn.Module]]
    """Context for reading the model; models that share weights can differ by it. Packed attention is already set up."""
    weight: float = 1.0
    """Exponent of the voice's distribution."""
    autocast: torch.dtype | None = None
    """Precision of the matrix products; None: that of the weights."""
    veto_top_p: float | None = None
    """Veto only: of its likeliest tokens, those that hold this probability together may be drawn. None: no veto."""
    sharded: bool = False
    """Whether its weights are split over several ranks."""
    budget: CacheBudget | None = None
    """Limit of its keys and values, for evaluations alone; None: all are kept."""

    @property
    def silent(self) -> bool:
        """Whether it changes nothing, so that it need not be read."""
        return self.weight == 0.0 and self.veto_top_p is None


class TermState(ABC):
    """State of an added term while a batch is completed."""

    @abstractmethod
    def added(self, log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        """Return the term of every next token, [rows, vocabulary]; minus infinity excludes a token.

        Args:
            log_probs: the voices' mixture, [rows, vocabulary], nats.
            rows: index of each row's request, [rows], int64.
            step: number of completion tokens before the next one.
        """

    @abstractmethod
    def read(self, tokens: Tensor, rows: Tensor, step: int) -> None:
        """Read the tokens that were drawn at `step`, [rows], int64."""

    def narrow(self, prompts: Tensor, members: Tensor) -> None:
        """Drop all other sequences; see `models.engines.shared_decoding.Decoding.narrow`. By default nothing."""
        return None


class AddedTerm(ABC):
    """A term that is added to the log-probs of the next token, such as its value."""

    @abstractmethod
    def begin(self, requests: Sequence[CompletionRequest], group_size: int) -> TermState:
        """Return the state of the term before the first token.

        Args:
            requests: requests of a batch, `group_size` of each prompt next to each other.
            group_size: requests of a prompt.
        """


@dataclass(frozen=True)
class JointDecoding:
    """All that chooses the next token in addition to a policy; by default nothing."""

    voices: tuple[Voice, ...] = ()
    terms: tuple[AddedTerm, ...] = ()
    budget: CacheBudget | None = None
    """Limit of the policy's own keys and values; None: all are kept."""


@runtime_checkable
class JointEngine(Protocol):
    """Interface of an engine that gives its distributions away, so that other models can take part."""

    def complete_with(
        self, requests: Sequence[CompletionRequest], drawing: TokenSampling, joint: JointDecoding
    ) -> list[Generated]:
        """Generate a completion for each request, [requests]; policy, voices and terms choose each token together.

        Raises:
            UserError: this engine or this policy cannot decode together with other models.
        """
        ...


def complete_jointly(
    engine: Engine, requests: Sequence[CompletionRequest], drawing: TokenSampling, joint: JointDecoding
) -> list[Generated]:
    """Generate a completion for each request together with other models, [requests]; see `JointEngine`.

    Raises:
        UserError: the engine is not a `JointEngine`, or its policy cannot decode together with other models.
    """
    if not isinstance(engine, JointEngine):
        raise UserError(
            "this engine does not decode together with other models; set engine.name=transformers and no placement"
        )
    return engine.complete_with(requests, drawing, joint)
