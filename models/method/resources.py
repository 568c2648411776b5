"""Resources of a run that parts use, such as learner, engine and judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from models.engines.engine import Engine
from models.learner.packing import Sequences
from models.method.judge import GenerativeJudge
from models.method.learner import Learner
from models.method.readings import Readings
from models.method.truncation import WRONG, TruncationSettings
from models.text.encoding import Codec


@dataclass(frozen=True)
class RunResources:
    """Objects of a run that parts may use in addition to their settings, all made before the loop begins."""

    codec: Codec
    engine: Engine | None
    """None if the recipe's source draws nothing."""
    score_with_reward_model: Callable[[Sequences], Tensor] | None
    """Function from sequences to the reward model's scores, [completions]; None if no reward model was fitted."""
    seed: int
    learner: Learner
    """Policy, reference and companions in their current state."""
    readings: Readings
    """Cached log-probs under policy and reference; the loop makes a new cache in every round."""
    truncated: TruncationSettings = WRONG
    """Rule for completions that did not end."""
    start: Path | None = None
    """Model folder of the policy that the run began with."""
    judge: GenerativeJudge | None = None
    """The generative judge; None if the recipe has none."""

    @property
    def token_budget(self) -> int:
        """Maximum number of tokens of a packed row, for parts that read completions with a model."""
        return self.readings.token_budget

    def required_judge(self) -> GenerativeJudge:
        """Return the judge; for parts that declare `needs_judge`, which ensures that there is one."""
        assert self.judge is not None, "the recipe check makes sure that a judge is there"
        return self.judge

    def sampler(self) -> Engine:
        """Return the engine; for sources that declare `draws`, which ensures that there is one."""
        assert self.engine is not None, "the source declares that it draws"
        return self.engine
