"""Recipes for the held-out sets that a recipe names, with other data but the same policy and measurement."""

from __future__ import annotations

from dataclasses import replace

from models.recipes.schema import Recipe


def held_out_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Derive a recipe for each held-out set, by which it is prepared, validated and evaluated: name -> recipe."""
    sets = recipe.gate.held_out
    return {
        name: recipe.model_copy(
            update={
                "data": settings.data(name).model_copy(update={"template": recipe.data.template}),
                "gate": replace(
                    recipe.gate,
                    problems=settings.problems,
                    samples=settings.samples,
                    fluency_margin=None,
                    copied=None,
                    hallucination=None,
                ),
                "evaluation": replace(recipe.evaluation, wrap=settings.wrap),
                "schedule": None,
            }
        )
        for name, settings in sets.items()
    }
