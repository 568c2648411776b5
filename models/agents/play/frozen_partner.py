"""Environments that the policy plays with a frozen model: the policy that the run began with, or a model folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from models.base.errors import UserError
from models.method.environment import Environment, View
from models.method.problem import Problem
from models.method.recipe_paths import ContentPath


class FrozenPartner(Environment):
    """Base class of these environments; the folder is their setting `model`."""

    several = True
    asks_frozen = True
    model: ContentPath

    @property
    def frozen(self) -> Path | None:
        """Folder of the frozen model, if the recipe names one; None: the policy that the run began with."""
        return Path(self.model) if self.model else None

    def with_partner(self, partner: Path) -> Self:
        """Return the environment with the model in the folder `partner` as the frozen model."""
        settings: Any = self
        changed: Self = replace(settings, model=str(partner))
        return changed

    def open(self, problem: Problem) -> View:  # type: ignore[override]
        """Raise an error, because the policy cannot play alone.

        Raises:
            UserError: always.
        """
        raise UserError(f"environment {self.name}: its episodes have two seats")
