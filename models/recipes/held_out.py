"""Recipes for the held-out sets that a recipe names, with other data but the same policy and measurement."""

from __future__ import annotations

from dataclasses import replace

from models.datasets.settings import DataSettings
from models.evaluation.gate.held_out import HeldOutSettings
from models.recipes.schema import Recipe


def held_out_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Derive a recipe for each held-out set, by which it is prepared, validated and evaluated: name -> recipe."""
    sets = recipe.gate.held_out
    return {
        name: recipe.model_copy(
            update={
                "data": _data(recipe, settings, name),
                "gate": replace(
                    recipe.gate,
                    problems=recipe.gate.problems if settings.is_control else settings.problems,
                    samples=recipe.gate.samples if settings.is_control else settings.samples,
                    fluency_margin=None,
                    copied=None,
                    hallucination=None,
                ),
                "evaluation": replace(recipe.evaluation, wrap=settings.wrap, images=settings.images),
                "schedule": None,
            }
        )
        for name, settings in sets.items()
    }


def _data(recipe: Recipe, settings: HeldOutSettings, name: str) -> DataSettings:
    """Return the data of a held-out set, in the recipe's template; a blind control has the recipe's own."""
    if settings.is_control:
        return recipe.data
    return settings.data(name).model_copy(update={"template": recipe.data.template})
