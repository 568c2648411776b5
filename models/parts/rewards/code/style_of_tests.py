"""Static quality of tests that the policy writes, without running them (RLSQM, paper 152, arXiv 2310.02368).

    value = share of the `metrics` that the tests meet           the metrics: `models.answers.smells`

A recipe that names one metric optimises it alone, as the paper first does; with all of them the sum is its amalgamated
reward. The paper fits a reward model to each metric; here the analysis itself gives the reward. Whether tests are
correct is measured by another part (`written_tests`). Tests are right by this part if they meet every metric; this also
decides in evaluations and at the gate if all metrics are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.answers.smells import METRICS, Metric, met_by
from models.method.attempt import Attempt
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.sandbox.written import written_code


@part("style_of_tests")
class StyleOfTests(Reward):
    """Share of the metrics of good tests that are met, by static analysis; zero for a completion that was cut."""

    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = METRICS
    """Metrics that are measured."""

    @property
    def verifies(self) -> bool:
        """Whether it decides in evaluations and at the gate: true if all metrics are named."""
        return set(self.metrics) == set(METRICS)

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        return torch.tensor([self._share(Attempt.of(each)) for each in rollouts])

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt meets all metrics, [attempts]."""
        return [self._share(attempt) == 1.0 for attempt in attempts]

    def _share(self, attempt: Attempt) -> float:
        if not attempt.finished:
            return 0.0
        met = met_by(written_code(attempt.text), attempt.problem.entry_point)
        return sum(metric in met for metric in self.metrics) / len(self.metrics)
