"""What parts may need beside their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from models.engine.engine import Engine
from models.judges.judge import GenerativeJudge
from models.learner.packing import Sequences
from models.loop.learner import Learner
from models.loop.readings import Readings
from models.loop.truncation import WRONG, TruncationSettings
from models.text.encoding import Codec


@dataclass(frozen=True)
class World:
    """What parts may need beside their settings: complete when it is made, before the loop begins."""

    codec: Codec
    engine: Engine | None
    """None where the recipe's source draws nothing."""
    score_with_reward_model: Callable[[Sequences], Tensor] | None
    """Scores of prompts with their completions, [completions]; None where no reward model was fitted."""
    seed: int
    learner: Learner
    """Policy, reference and companions as they stand."""
    readings: Readings
    """Log-probs under policy and reference, each completion read once a round: the loop renews them every round."""
    truncated: TruncationSettings = WRONG
    """What becomes of completions that did not end."""
    start: Path | None = None
    """Model folder of the policy that the run began with."""
    judge: GenerativeJudge | None = None
    """Who reads and writes; None where the recipe has no judge."""

    @property
    def token_budget(self) -> int:
        """Tokens of one packed row, for parts that read completions with a model."""
        return self.readings.token_budget

    def asked_judge(self) -> GenerativeJudge:
        """The judge, which every recipe has whose parts ask it."""
        assert self.judge is not None, "the recipe check makes sure that a judge is there"
        return self.judge

    def sampler(self) -> Engine:
        """The engine, which every source that draws has."""
        assert self.engine is not None, "the source says that it draws"
        return self.engine
