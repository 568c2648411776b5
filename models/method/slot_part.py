"""Traits that every part may declare, whatever its slot.

A part is a class derived from the class of its slot and registered by `@part` (models.method.registry). The slots of
the loop are rollout_source, reward, select, advantage, objective and reference in this package; each declares the
methods that a part must define, and traits with default values. A trait that depends on a setting is a property.
`models.recipes.combinations` compares the traits of a recipe's parts with one another, so that no method is named
there. A trait that is not declared is refused at import. No part logs, none knows the loop.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from models.method.learner import Companion, TeacherUse
from models.method.registry import Part
from models.method.rollout import Extra

TOTAL = "total"
"""Name of the weighted sum of all rewards wherever a part reads one of them."""


class SlotPart(Part):
    """Base class of the parts of the loop, with the traits that every one may declare."""

    @property
    def misfit(self) -> str:
        """Error message, one line with the key, if its settings do not fit together or are incomplete; empty if they
        do. The defaults of a part may be incomplete."""
        return ""

    @property
    def needs_reference(self) -> bool:
        """Whether it reads the reference, and so cannot be used with `reference: {name: none}`."""
        return False

    @property
    def needs_teacher(self) -> TeacherUse | None:
        """Its use of the teacher; None: it needs no teacher."""
        return None

    @property
    def needs_judge(self) -> bool:
        """Whether it needs the generative judge."""
        return False

    @property
    def needs_likelihoods(self) -> bool:
        """Whether it reads the judge's likelihoods of given texts, which a judge at an address does not return."""
        return False

    @property
    def by(self) -> str:
        """Label of the reward that it reads; `total`: the weighted sum of all; empty: none. A setting, if others are
        possible."""
        return TOTAL

    @property
    def needs_extra(self) -> Extra | None:
        """Kind of further data that the source of rollouts must provide with its completions; None: none."""
        return None

    @property
    def one_sequence(self) -> bool:
        """Whether it can only read episodes that are a single sequence: a prompt and its continuation."""
        return False

    @property
    def companion(self) -> str:
        """Name, in metrics too, of its companion: a model that is trained in addition to the policy; empty: none."""
        return ""

    @property
    def begins_as(self) -> Literal["policy", "judge"]:
        """The model whose weights its companion starts from."""
        return "policy"

    def accompany(self, policy: nn.Module) -> Companion | None:
        """Build the part's companion from `policy`, the model named by `begins_as`; None if it has no companion."""
        return None
