"""What tests that the policy writes are worth without being run (RLSQM, paper 152, arXiv 2310.02368).

    value = share of the `metrics` that the tests meet           the metrics: `models.text.smells`

A recipe that names one metric optimises that alone, as the paper first does; with all of them the sum is its
amalgamated reward. The paper fits a reward model to each metric; here the analysis itself is asked. Whether tests are
right is another question (`written_tests`). Right by this part, in evaluations and at the gate too where it names
all metrics, are tests that meet every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.loop.attempt import Attempt
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.sandbox.written import written_code
from models.text.smells import METRICS, Metric, met_by


@part("style_of_tests")
class StyleOfTests(Reward):
    """Good practices and smells of tests, by their text; zero of a completion that was cut."""

    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = METRICS
    """Which."""

    @property
    def verifies(self) -> bool:
        """Whether it decides in evaluations and at the gate: where it asks for everything."""
        return set(self.metrics) == set(METRICS)

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [0, 1], [completions]."""
        return torch.tensor([self._share(Attempt.of(each)) for each in rollouts])

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts meet all metrics, [attempts]."""
        return [self._share(attempt) == 1.0 for attempt in attempts]

    def _share(self, attempt: Attempt) -> float:
        if not attempt.finished:
            return 0.0
        met = met_by(written_code(attempt.text), attempt.problem.entry_point)
        return sum(metric in met for metric in self.metrics) / len(self.metrics)
