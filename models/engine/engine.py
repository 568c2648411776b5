"""What an engine is: it generates, it scores given tokens, it takes new weights, and it is closed."""

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

from models.device import has_gpu
from models.errors import UserError
from models.seeds import completion_seed


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How completions are generated. Stands under `engine:`."""

    name: Literal["auto", "vllm", "transformers"] = "auto"
    """auto: vLLM where it is installed and has a kernel for the model's attention heads."""
    max_sequences: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Completions that are generated at once."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.35
    """Share of a GPU's memory that vLLM takes beside the learner."""
    compile: bool | Literal["auto"] = "auto"
    """Let vLLM compile the model and record CUDA graphs: slower to start, faster after. auto: on a GPU."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of weights and arithmetic; auto follows the learner, or the device where nobody learns."""
    sleep: bool | Literal["auto"] = "auto"
    """Give up weights and cache while the learner fits, where both share a process and no round is drawn ahead. auto:
    on a GPU; vLLM can there alone."""

    @property
    def sleeps(self) -> bool:
        """What `sleep` means here."""
        return has_gpu() if self.sleep == "auto" else self.sleep


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How tokens are drawn: logits / temperature, then top-k, then top-p, then a softmax over what is left.

    Both engines and the learner truncate by the same rule (vLLM's `apply_top_k_top_p_pytorch`), in float32:
    top-k drops every token whose logit is `<` the k-th largest, so tokens that tie with the k-th all stay. Top-p takes
    the softmax of what top-k left, sums it from the least likely token upwards, and drops a token where this sum, its
    own probability included, is `<= 1 - top_p`; the likeliest token always stays. In other words a token stays where
    those ranked before it hold less than top_p; vLLM cuts ties at that border, the other engine and the learner do not.
    (vLLM on CUDA with Triton cuts ties with the k-th to k exactly.) Greedy ignores top-k and top-p, and its log-probs
    are those of temperature 1.
    """

    temperature: float = 1.0
    """Zero is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """Zero keeps all tokens."""
    log_probs: bool = True
    """Whether each token's log-prob is wanted: learning needs them, evaluation is faster without."""


@dataclass(frozen=True, kw_only=True)
class Sampling(Drawing):
    """How a batch of prompts is answered: as many completions of each, of the same length at most."""

    max_tokens: int = 64
    """Longest completion, in tokens."""
    samples: int = 1
    """Completions of each prompt (G)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion that is asked for.

    Its tokens hang on nothing but the weights and what stands here: not on the other asks of a call, their number or
    their order, nor on which of several engines it goes to. (But for the last bits of a sum, which batches may add in
    another order: where a random point falls within them of a border between two tokens, the draw may differ.)
    """

    prompt: Sequence[int]
    """Token ids, not empty."""
    seed: int
    """Of its random points, in [0, 2^63)."""
    max_tokens: int
    """Longest completion, in tokens; at least 1."""
    stops: tuple[int, ...] = ()
    """Token ids that end it, beside those that end every completion."""
    actions: tuple[str, ...] = ()
    """Texts that are admitted, where an environment lists them. An engine draws whatever it draws: only a strategy of
    an evaluation holds itself to them."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")


Versions = tuple[tuple[int, int], ...]
"""Spans of a completion's tokens by the weights that drew them: first token and version of the weights, in order. The
first begins at token 0, each ends where the next begins."""


@dataclass(frozen=True, eq=False)
class Generated:
    """One completion as the engine made it. Equal to itself alone: two may hold the same tokens."""

    tokens: tuple[int, ...]
    """Token ids, with the end token where it was reached, [tokens]."""
    log_probs: Tensor | None
    """Log-prob of each token under the distribution it was drawn from, [tokens], in nats, float32 on the CPU, with
    memory of its own; None where not wanted."""
    finished: bool
    """Whether it ended by itself and was not cut at `max_tokens`."""
    versions: Versions = field(default=(), kw_only=True)
    """Whose its tokens are, where weights could change while it was written (`Engine.serve`); else empty."""


class Engine(Protocol):
    """A generator of completions whose weights can be replaced."""

    dtype: torch.dtype
    """What it computes in."""
    vocabulary: int
    """Rows of the model's embedding: a token id is less."""
    longest: int | None = None
    """Tokens that a prompt and its completion may have together; None: no limit of its own."""
    version: int = 0
    """That of the weights it has, as `load` was given it; 0: those that it was started with."""
    room: int = 0
    """Completions that it writes side by side where it `serve`s; 0: it cannot."""

    def members(self) -> Sequence[Engine]:
        """The engines behind it, each with weights of its own; the engine itself where there are no others."""
        return (self,)

    @abstractmethod
    def each(self, asks: Sequence[Ask], drawing: Drawing) -> list[Generated]:
        """A completion of each ask, [asks]; neighbours with the same prompt may share the work for it."""
        ...

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        """`sampling.samples` completions of each prompt, [prompts][G]; the same seed gives the same completions."""
        made = self.each(asks_of(prompts, sampling, seed), sampling)
        return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]

    def serve(
        self, asks: Mapping[int, Ask], drawing: Drawing, steps: int, dropped: Collection[int] = ()
    ) -> dict[int, Generated]:
        """Go on with all that is under way for `steps` tokens of each. Returns what ended, by its number.

        Between two calls the engine may `load`: what is under way goes on with the new weights, and with keys and
        values that the old ones made of the tokens before. It may `score` and make `each` completion, too, while
        others go on.

        Args:
            asks: what is begun now, or when there is room; by numbers that nothing under way has.
            drawing: how tokens are drawn; that of what is under way.
            steps: 0: what is asked for waits for the next call.
            dropped: numbers of what is not wanted any more, under way or not.

        Raises:
            ValueError: another drawing than that of what is under way.
        """
        raise ValueError("an engine without room does not serve")

    @abstractmethod
    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs of given completion tokens at temperature 1, [completions][tokens], in nats."""
        ...

    @abstractmethod
    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """Replace the weights; what was cached under the old ones is forgotten, but for what is under way (`serve`).

        Args:
            weights: names and tensors of the whole model, tied ones under each of their names.
            version: what the engine answers from now on when it is asked for its `version`.
        """
        ...

    def sleep(self) -> None:
        """Give up weights and cache, where that is wanted and the memory is the learner's too. The next call is a
        `load`, which fills both again. Nothing may be under way."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free memory and processes."""
        ...


def asks_of(prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[Ask]:
    """`sampling.samples` asks of each prompt, those of one prompt side by side, [prompts * G]."""
    return [
        Ask(prompt, completion_seed(seed, place, number), sampling.max_tokens)
        for place, prompt in enumerate(prompts)
        for number in range(sampling.samples)
    ]


def prompts_of(asks: Sequence[Ask]) -> list[Sequence[int]]:
    """The prompts of asks, neighbours with the same prompt once: those that `asks_of` was given."""
    return [prompt for prompt, _ in groupby(asks, key=lambda ask: ask.prompt)]


def has_vllm() -> bool:
    """Whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def engine_dtype(settings: EngineSettings, dtype: torch.dtype | None) -> torch.dtype:
    """What the engine computes in: what `engine.precision` names, else `dtype`, else what suits the device."""
    if settings.precision != "auto":
        return torch.float32 if settings.precision == "float32" else torch.bfloat16
    return dtype or (torch.bfloat16 if has_gpu() else torch.float32)


def check_ids(rows: Sequence[Sequence[int]], vocabulary: int, longest: int | None = None) -> None:
    """Make sure that an engine can take these prompts.

    Args:
        rows: token ids, [prompts] lists.
        vocabulary: rows of the model's embedding.
        longest: tokens that a prompt and one token more may have; None: no limit.

    Raises:
        UserError: a prompt is empty or too long, or an id stands outside the vocabulary.
    """
    for number, row in enumerate(rows):
        if not row:
            raise UserError(f"prompt {number} is empty: an engine needs one token to begin with")
        if longest is not None and len(row) >= longest:
            raise UserError(
                f"prompt {number} has {len(row)} tokens; with one to generate the engine holds {longest - 1} at most"
            )
        if min(row) < 0 or max(row) >= vocabulary:
            wrong = min(row) if min(row) < 0 else max(row)
            raise UserError(
                f"prompt {number} holds token id {wrong}, but the model's vocabulary ends at {vocabulary - 1}: "
                "its tokenizer belongs to another model"
            )
