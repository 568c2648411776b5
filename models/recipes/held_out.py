"""The held-out sets that a recipe names, each as a recipe of its own: other data, the same policy and measurement."""

from __future__ import annotations

from dataclasses import replace

from models.recipes.schema import Recipe


def held_out_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Map each held-out set's name to the recipe by which it is prepared, validated and answered."""
    sets = recipe.gate.held_out
    return {
        name: recipe.model_copy(
            update={
                "data": settings.data(name).model_copy(update={"template": recipe.data.template}),
                "gate": replace(recipe.gate, problems=settings.problems, samples=settings.samples, fluency_margin=None),
                "schedule": None,
            }
        )
        for name, settings in sets.items()
    }
