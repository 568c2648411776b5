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
    source_recipe: Recipe = load_recipe(settings.recipe, settings.set)
    if source_recipe.teacher is not None or frozen_models(source_recipe):
        frozen_model = "a teacher" if source_recipe.teacher is not None else "a judge"
        raise UserError(
            f"{key}: {source_recipe.name} has {frozen_model} itself; run it first, and give its policy's folder as path"
        )
    if role == "judge":
        return source_recipe
    if (source_recipe.data, source_recipe.validation) != (recipe.data, recipe.validation):
        raise UserError(
            f"{key}: {source_recipe.name} has other data than {recipe.name}; give its policy's folder as path"
        )
    own_settings, source_settings = ((each.policy.base, each.policy.tokenizer) for each in (recipe, source_recipe))
    if own_settings[0] is None and own_settings != source_settings:
        raise UserError(f"{key}: {source_recipe.name} has another tokenizer than {recipe.name}")
    return source_recipe
