"""State of the learner: all models and records that change while the training loop runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.ranks import Ranks
from models.learner.distribution import Distribution
from models.learner.offloaded import Offloaded
from models.learner.optimiser import OptimiserSettings, take_step
from models.learner.packing import Sequences
from models.learner.whole_weights import ranks_of
from models.method.memory import Memory
from models.method.tally import Tally

Role = Literal["teacher", "contrast", "judge"]
"""Role of a frozen model.

teacher: the policy imitates it
contrast: the teacher's logits are moved away from those of this model
judge: it grades completions in text (`models.reward_models.judges`), and may have another tokenizer
"""
TargetModel = Literal["teacher", "reference", "policy"]
"""Model whose token distributions the policy is trained towards: the frozen teacher, the reference, or the policy
itself. The last two read context that the policy does not read."""
TeacherUse = Literal["log_probs", "model"]
"""Use of the teacher.

log_probs: log-probs of given tokens, which a teacher at an address returns too
model: the model itself on this machine, which can sample, and whose whole distributions can be read
"""


@dataclass
class Companion:
    """A model that is trained in addition to the policy for one part, such as a critic or a process reward model."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    updates: int = 0
    """Optimiser steps taken so far."""

    def step(self, settings: OptimiserSettings, setting: str, loss: Tensor | None = None) -> float:
        """Take one optimiser step on the accumulated gradients. Returns their norm.

        The total number of steps is not passed: the settings of companions have no decay that needs it.

        Args:
            settings: step size, its warm-up, clipping.
            setting: key of the recipe that holds them, for the error message.
            loss: loss of the step, a scalar, which must be finite too; None: not checked.

        Raises:
            UserError: the loss or a gradient is not finite.
        """
        norm = take_step(self.optimiser, self.model.parameters(), self.updates, 1, settings, setting, loss)
        self.updates += 1
        return norm


@dataclass
class Learner:
    """State that changes while the training loop runs: the policy, its optimiser, the reference and companions."""

    policy: nn.Module
    optimiser: torch.optim.Optimizer
    reference: nn.Module | None
    """A copy of the policy; None without a reference, or if it is the policy without its adapter."""
    adapter_off: Callable[[], AbstractContextManager[object]] | None
    """For LoRA: context in which the policy is its own reference."""
    autocast: torch.dtype | None
    distribution: Distribution
    """Temperature, top-p and top-k of sampling; the learner's log-probs are those of the same distribution."""
    mask_top_p: float = 1.0
    """Top-p of the mask: only tokens within this probability of the reference may be drawn, and log-probs are those of
    the distribution over them. 1: no mask."""
    reference_moves: bool = True
    """Whether the reference can change; one that cannot is not written to checkpoints."""
    offloaded: Offloaded | None = None
    """Store of the reference's weights while it is not read; None: they stay on the policy's device."""
    updates: int = 0
    """Optimiser steps taken so far."""
    companions: dict[str, Companion] = field(default_factory=dict)
    """Companions by name, which is also the name of their files in a checkpoint."""
    teachers: Mapping[Role, nn.Module] = field(default_factory=dict)
    """Frozen models that the policy is distilled from, by their role; of any size, with the policy's vocabulary. They
    are not in checkpoints."""
    served_teacher: Callable[[Sequences], list[Tensor]] | None = None
    """Function that returns log-probs under a teacher at an address, [completions] tensors of [tokens of it]; None if
    there is none."""
    memory: Memory = field(default_factory=list)
    """Rollouts of earlier rounds, kept here by a source that replays them, or by an advantage that `remembers`."""
    tally: Tally = field(default_factory=Tally)
    """Counts of the run so far."""

    @property
    def ranks(self) -> Ranks:
        """The processes that learn together: those that the policy is sharded over."""
        return ranks_of(self.policy)

    @contextmanager
    def as_reference(self) -> Iterator[nn.Module | None]:
        """Yield the reference, for reading; None if the recipe has none."""
        if self.reference is None and self.adapter_off is not None:
            with self.adapter_off():
                yield self.policy
        else:
            with self.offloaded.fetched() if self.offloaded else nullcontext():
                yield self.reference

    @contextmanager
    def as_judge(self, judge: TargetModel) -> Iterator[nn.Module]:
        """Yield the model whose token distributions the policy is trained towards, for reading.

        Raises:
            UserError: the recipe has none.
        """
        if judge == "policy":
            yield self.policy
            return
        with self.as_reference() as reference:
            model = reference if judge == "reference" else self.teachers.get("teacher")
            if model is None:
                raise UserError(f"the {judge} is to judge the policy's tokens, but there is none")
            yield model

    @property
    def moving(self) -> dict[str, nn.Module]:
        """Every model that can change, by name."""
        modules = {"policy": self.policy, **{name: companion.model for name, companion in self.companions.items()}}
        if self.reference is not None and self.reference_moves:
            modules["reference"] = self.reference
        return modules

    @property
    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimiser of every model that learns, by the model's name."""
        return {"policy": self.optimiser, **{name: companion.optimiser for name, companion in self.companions.items()}}
