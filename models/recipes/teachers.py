"""The frozen models that a recipe names, and the recipes that make them."""

from __future__ import annotations

from models.base.errors import UserError
from models.method.learner import Role
from models.policies.teacher import FrozenSettings
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe

KEYS: dict[Role, str] = {"teacher": "teacher", "contrast": "teacher.contrast", "judge": "judge"}
"""Role of a frozen model -> its key in a recipe."""


def frozen_models(recipe: Recipe) -> dict[Role, FrozenSettings]:
    """Return the settings of the frozen models that are stored or made on this machine, by role.

    A judge that is the policy as the run begins is not included.
    """
    frozen: dict[Role, FrozenSettings] = {}
    if recipe.teacher is not None and recipe.teacher.address is None:
        frozen["teacher"] = recipe.teacher
        if recipe.teacher.contrast is not None:
            frozen["contrast"] = recipe.teacher.contrast
    judge = recipe.judge
    if judge is not None and (judge.path is not None or judge.recipe is not None):
        frozen["judge"] = judge
    return frozen


def recipe_of(settings: FrozenSettings, recipe: Recipe, role: Role) -> Recipe:
    """Load the recipe that makes a frozen model.

    Raises:
        UserError: unless its role is judge, it has other data than `recipe` or other token ids; or it has frozen models
            of its own that are made or stored here, or a teacher.
    """
    key = f"{KEYS[role]}.recipe"
    assert settings.recipe is not None, "a recipe makes the model"
    made: Recipe = load_recipe(settings.recipe, settings.set)
    if made.teacher is not None or frozen_models(made):
        whom = "a teacher" if made.teacher is not None else "a judge"
        raise UserError(f"{key}: {made.name} has {whom} itself; run it first, and give its policy's folder as path")
    if role == "judge":
        return made
    if (made.data, made.validation) != (recipe.data, recipe.validation):
        raise UserError(f"{key}: {made.name} has other data than {recipe.name}; give its policy's folder as path")
    ids, theirs = ((each.policy.base, each.policy.tokenizer) for each in (recipe, made))
    if ids[0] is None and ids != theirs:
        raise UserError(f"{key}: {made.name} has another tokenizer than {recipe.name}")
    return made
