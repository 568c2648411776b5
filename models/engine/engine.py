"""What an engine is: it generates, it scores given tokens, it takes new weights, and it is closed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from models.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How completions are generated. Stands under `engine:`."""

    name: Literal["auto", "vllm", "transformers"] = "auto"
    """auto: vLLM where it is installed."""
    max_sequences: int = 256
    """Completions that are generated at once."""
    memory_share: float = 0.35
    """Share of a GPU's memory that vLLM takes beside the learner."""
    compile: bool = False
    """Let vLLM compile the model: slower to start, faster after."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How one call samples."""

    max_tokens: int = 64
    """Longest completion, in tokens."""
    temperature: float = 1.0
    """Zero is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """Zero keeps all tokens."""
    samples: int = 1
    """Completions of each prompt (G)."""


@dataclass(frozen=True)
class Generated:
    """One completion as the engine made it."""

    tokens: tuple[int, ...]
    """Token ids, with the end token where it was reached, [tokens]."""
    log_probs: tuple[float, ...]
    """Log-prob of each token under the distribution it was drawn from, [tokens], in nats."""
    finished: bool
    """Whether it ended by itself and was not cut at `max_tokens`."""


class Engine(Protocol):
    """A generator of completions whose weights can be replaced."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        """`sampling.samples` completions of each prompt, [prompts][G]; the same seed gives the same completions."""
        ...

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs of given completion tokens at temperature 1, [completions][tokens], in nats."""
        ...

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights; what was cached under the old ones is forgotten."""
        ...

    def close(self) -> None:
        """Free memory and processes."""
        ...


def has_vllm() -> bool:
    """Whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def open_engine(folder: Path, settings: EngineSettings, *, longest: int, end: int, seed: int) -> Engine:
    """Start the engine that `settings` name on the weights of a model folder.

    Args:
        folder: a model folder in safetensors.
        settings: which engine and its limits.
        longest: tokens of the longest prompt and completion together.
        end: id of the token that ends a completion.
        seed: of the engine's own random numbers.

    Raises:
        UserError: vLLM is asked for and not installed.
    """
    if settings.name == "vllm" and not has_vllm():
        raise UserError(
            "engine.name: vllm is not installed; install the extra cpu or cuda, or use engine.name: transformers"
        )
    if settings.name == "transformers" or not has_vllm():
        from models.engine.transformers_engine import TransformersEngine

        return TransformersEngine(folder, settings, end=end)
    from models.engine.vllm_engine import VllmEngine

    return VllmEngine(folder, settings, longest=longest, end=end, seed=seed)
