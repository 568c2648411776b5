"""Interface of an engine, which generates completions, scores given tokens and loads new weights."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from models.base.device import has_gpu
from models.base.errors import UserError
from models.base.seeds import completion_seed


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of the engine that generates completions, under `engine:`."""

    name: Literal["auto", "vllm", "transformers"] = "auto"
    """Engine; auto: vLLM if it is installed and has a kernel for the model's attention heads."""
    max_sequences: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Completions that are generated at once."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.35
    """Share of a GPU's memory that vLLM takes in addition to the learner."""
    compile: bool | Literal["auto"] = "auto"
    """Whether vLLM compiles the model and records CUDA graphs: slower to start, faster after. auto: on a GPU."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of weights and arithmetic; auto: that of the learner, or of the device without a learner."""
    sleep: bool | Literal["auto"] = "auto"
    """Whether to release weights and cache while the learner fits, if both share a process and no round is drawn ahead.
    auto: on a GPU; vLLM supports it only there."""

    @property
    def sleeps(self) -> bool:
        """Whether the engine sleeps, with `auto` resolved for this machine."""
        return has_gpu() if self.sleep == "auto" else self.sleep


@dataclass(frozen=True, kw_only=True)
class TokenSampling:
    """Settings of token sampling: logits / temperature, then top-k, then top-p, then a softmax over the rest.

    Both engines and the learner truncate by the same rule (vLLM's `apply_top_k_top_p_pytorch`), in float32: top-k drops
    every token whose logit is `<` the k-th largest, so all tokens that tie with the k-th stay. Top-p takes the softmax
    of the tokens that top-k left, sums it from the least likely token upwards, and drops a token if this sum, its own
    probability included, is `<= 1 - top_p`; the likeliest token always stays. In other words, a token stays if those
    ranked before it hold less than top_p; vLLM cuts ties at that border, the other engine and the learner do not. (vLLM
    on CUDA with Triton cuts ties with the k-th to k exactly.) Greedy ignores top-k and top-p, and its log-probs are
    those of temperature 1.
    """

    temperature: float = 1.0
    """Sampling temperature; zero is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """Number of likeliest tokens that are kept; zero keeps all."""
    log_probs: bool = True
    """Whether log-probs are returned: learning needs them, evaluation is faster without."""


@dataclass(frozen=True, kw_only=True)
class Sampling(TokenSampling):
    """Sampling settings for a batch of prompts, with the number and the largest length of completions per prompt."""

    max_tokens: int = 64
    """Longest completion, in tokens."""
    samples: int = 1
    """Completions per prompt (G)."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Request for one completion.

    Its tokens depend only on the weights and on the fields below: not on the other requests of a call, their number or
    their order, nor on which of several engines handles it. (The exception is the last bits of a sum, which batches may
    add in another order: if a random point is within them of a border between two tokens, the draw may differ.)
    """

    prompt: Sequence[int]
    """Token ids, not empty."""
    seed: int
    """Seed of its random points, in [0, 2^63)."""
    max_tokens: int
    """Longest completion, in tokens; at least 1."""
    stops: tuple[int, ...] = ()
    """Token ids that end it, in addition to those that end every completion."""
    actions: tuple[str, ...] = ()
    """Allowed texts, if an environment lists them. Only a strategy of an evaluation enforces them, not an engine."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")


Versions = tuple[tuple[int, int], ...]
"""Spans of a completion's tokens by the weights that drew them: first token and version of the weights, in order. The
first begins at token 0, and each ends where the next begins."""


@dataclass(frozen=True, eq=False)
class Generated:
    """One completion from the engine. Compared by identity: two may hold the same tokens."""

    tokens: tuple[int, ...]
    """Token ids, with the end token if it was reached, [tokens]."""
    log_probs: Tensor | None
    """Log-prob of each token under the distribution it was drawn from, [tokens], in nats, float32 on the CPU, with
    memory of its own; None if not requested."""
    finished: bool
    """Whether it ended by itself and was not cut at `max_tokens`."""
    versions: Versions = field(default=(), kw_only=True)
    """Weights that drew its tokens, if weights could change while it was written (`Engine.serve`); otherwise empty."""


class Engine(Protocol):
    """Interface of a generator of completions whose weights can be replaced."""

    dtype: torch.dtype
    """Data type of the computation."""
    vocabulary: int
    """Rows of the model's embedding; token ids are below it."""
    longest: int | None = None
    """Largest number of tokens of a prompt and its completion; None: no limit of its own."""
    version: int = 0
    """Version of the current weights, as passed to `load`; 0: the initial weights."""
    room: int = 0
    """Completions that it generates at the same time with `serve`; 0: `serve` is not supported."""

    def members(self) -> Sequence[Engine]:
        """Return the engines that it consists of, each with its own weights; by default the engine itself."""
        return (self,)

    @abstractmethod
    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """Generate a completion for each request, [requests]; adjacent requests with the same prompt may share work."""
        ...

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        """Generate `sampling.samples` completions of each prompt, [prompts][G], reproducible by the seed."""
        made = self.complete(requests_of(prompts, sampling, seed), sampling)
        return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        """Continue all completions in progress for `steps` tokens each. Returns the finished ones by number.

        Between two calls the engine may `load`: completions in progress continue with the new weights, and with keys
        and values that the old ones computed for the earlier tokens. It may also `score` and `complete` while others
        are in progress.

        Args:
            requests: number -> request to start now, or when there is room; no number may be in progress.
            drawing: how tokens are drawn; the same as for the completions in progress.
            steps: number of tokens; 0: requests wait for the next call.
            dropped: numbers of completions to abandon, in progress or not.

        Raises:
            ValueError: the drawing differs from that of the completions in progress.
        """
        raise ValueError("an engine without room does not serve")

    @abstractmethod
    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probs of given completion tokens at temperature 1, [completions][tokens], in nats."""
        ...

    @abstractmethod
    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """Replace the weights and clear the cache of the old ones, except for completions in progress (`serve`).

        Args:
            weights: names and tensors of the whole model, tied ones under each of their names.
            version: value of the engine's `version` from now on.
        """
        ...

    def sleep(self) -> None:
        """Release weights and cache, if that is enabled and the memory is shared with the learner.

        The next call must be a `load`, which fills both again. No completion may be in progress.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Free memory and processes."""
        ...


def requests_of(prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[CompletionRequest]:
    """Build `sampling.samples` requests for each prompt, those of one prompt next to each other, [prompts * G]."""
    return [
        CompletionRequest(prompt, completion_seed(seed, place, number), sampling.max_tokens)
        for place, prompt in enumerate(prompts)
        for number in range(sampling.samples)
    ]


def prompts_of(requests: Sequence[CompletionRequest]) -> list[Sequence[int]]:
    """Return the prompts of requests, once for adjacent requests with the same prompt."""
    return [prompt for prompt, _ in groupby(requests, key=lambda request: request.prompt)]


def has_vllm() -> bool:
    """Return whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def engine_dtype(settings: EngineSettings, dtype: torch.dtype | None) -> torch.dtype:
    """Return the data type of the engine: that of `engine.precision`, else `dtype`, else the default of the device."""
    if settings.precision != "auto":
        return torch.float32 if settings.precision == "float32" else torch.bfloat16
    return dtype or (torch.bfloat16 if has_gpu() else torch.float32)


def check_ids(
    rows: Sequence[Sequence[int]], vocabulary: int, longest: int | None = None, *, images: bool = False
) -> None:
    """Check that prompts are not empty, not too long, and within the vocabulary.

    Args:
        rows: token ids, [prompts] lists.
        vocabulary: rows of the model's embedding.
        longest: largest number of tokens of a prompt plus one generated token; None: no limit.
        images: whether ids below zero are allowed, which are those of images.

    Raises:
        UserError: a prompt is empty or too long, or an id is outside the vocabulary.
    """
    for number, row in enumerate(rows):
        if not row:
            raise UserError(f"prompt {number} is empty: an engine needs one token to begin with")
        if longest is not None and len(row) >= longest:
            raise UserError(
                f"prompt {number} has {len(row)} tokens; with one to generate the engine holds {longest - 1} at most"
            )
        least = 0 if images else min(row)
        if least < 0 or max(row) >= vocabulary:
            wrong = least if least < 0 else max(row)
            raise UserError(
                f"prompt {number} holds token id {wrong}, but the model's vocabulary ends at {vocabulary - 1}: "
                "its tokenizer belongs to another model"
            )
