"""The frozen models that a recipe names, and the recipes that make them."""

from __future__ import annotations

from models.errors import UserError
from models.loop.judge import Role
from models.policy.teacher import FrozenSettings
from models.recipe.load import load_recipe
from models.recipe.schema import Recipe

KEYS: dict[Role, str] = {"teacher": "teacher", "contrast": "teacher.contrast"}
"""Where a recipe names each."""


def frozen_models(recipe: Recipe) -> dict[Role, FrozenSettings]:
    """The models that a recipe learns from and that lie on this machine or are made on it, by role."""
    if recipe.teacher is None or recipe.teacher.address is not None:
        return {}
    contrast = recipe.teacher.contrast
    return {"teacher": recipe.teacher} if contrast is None else {"teacher": recipe.teacher, "contrast": contrast}


def recipe_of(settings: FrozenSettings, recipe: Recipe, role: Role) -> Recipe:
    """The recipe that makes a frozen model.

    Raises:
        UserError: it has other data than `recipe`, other token ids, or a teacher of its own.
    """
    key = f"{KEYS[role]}.recipe"
    assert settings.recipe is not None, "a recipe makes the model"
    made: Recipe = load_recipe(settings.recipe, settings.set)
    if (made.data, made.validation) != (recipe.data, recipe.validation):
        raise UserError(f"{key}: {made.name} has other data than {recipe.name}; give its policy's folder as path")
    if made.teacher is not None:
        raise UserError(f"{key}: {made.name} has a teacher itself; run it first, and give its policy's folder as path")
    ids, theirs = ((each.policy.base, each.policy.tokenizer) for each in (recipe, made))
    if ids[0] is None and ids != theirs:
        raise UserError(f"{key}: {made.name} has another tokenizer than {recipe.name}")
    return made
