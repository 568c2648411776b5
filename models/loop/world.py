"""What parts may need beside their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from models.engine.engine import Engine
from models.learner.packing import Sequences
from models.loop.learner import Learner
from models.loop.readings import Readings
from models.loop.truncation import WRONG, TruncationSettings
from models.text.encoding import Codec


@dataclass(frozen=True)
class World:
    """What parts may need beside their settings: opened once before the loop begins."""

    codec: Codec
    engine: Engine | None
    """None where the recipe's source draws nothing."""
    score_with_reward_model: Callable[[Sequences], Tensor] | None
    """Scores of prompts with their completions, [completions]; None where no reward model was fitted."""
    seed: int
    learner: Learner | None = None
    """Policy, reference and companions as they stand; the loop puts it here."""
    token_budget: int = 16384
    """Tokens of one packed row, for parts that read completions with a model."""
    readings: Readings | None = None
    """Log-probs of this round's completions; the loop puts them here anew every round."""
    truncated: TruncationSettings = WRONG
    """What becomes of completions that did not end."""

    def sampler(self) -> Engine:
        """The engine, which every source that draws has."""
        assert self.engine is not None, "the source says that it draws"
        return self.engine

    def models(self) -> Learner:
        """The learner, which every part sees inside the loop."""
        assert self.learner is not None, "the loop puts the learner into the world"
        return self.learner

    def log_probs(self) -> Readings:
        """Log-probs under policy and reference, each completion read once a round."""
        return self.readings or Readings(self.models(), self.token_budget)
