"""The frozen models that a recipe names, and the recipes that make them."""

from __future__ import annotations

from models.base.errors import UserError
from models.method.learner import Role
from models.policies.build import StageSettings
from models.policies.teacher import FrozenSettings
from models.recipes.load import load_recipe
from models.recipes.named_models import entries_of_parts
from models.recipes.schema import Recipe
from models.recipes.stages import first_stage

KEYS: dict[str, str] = {"teacher": "teacher", "contrast": "teacher.contrast", "judge": "judge"}
"""Role of a frozen model -> its key in a recipe."""
VOCABULARY_ROLES = ("teacher", "contrast")
"""Roles of the models that must have the policy's vocabulary."""


def key_of(role: str) -> str:
    """Return the key of a frozen model in a recipe, by its role; a model by name has its key already."""
    return KEYS.get(role, role)


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


def named_models(recipe: Recipe) -> dict[str, FrozenSettings]:
    """Return the settings of the frozen models that parts refer to by name, by their key in the recipe."""
    return {f"models.{name}": recipe.models[name] for name in entries_of_parts(recipe)}


def all_frozen(recipe: Recipe) -> dict[str, FrozenSettings]:
    """Return the settings of `frozen_models` and `named_models` together."""
    return {**{str(role): settings for role, settings in frozen_models(recipe).items()}, **named_models(recipe)}


def recipe_of(settings: FrozenSettings, recipe: Recipe, role: str) -> Recipe:
    """Load the recipe that makes a frozen model.

    Args:
        settings: settings of the model.
        recipe: the recipe that names it.
        role: its role, or its key if it has none (`named_models`).

    Raises:
        UserError: its role is teacher or contrast, and it has other data than `recipe` or other token ids; or it has
            frozen models of its own that are made or stored here, a teacher, or a stage before it.
    """
    key = f"{key_of(role)}.recipe"
    assert settings.recipe is not None, "a recipe makes the model"
    source_recipe: Recipe = load_recipe(settings.recipe, settings.set)
    if isinstance(source_recipe.policy.base, StageSettings):
        raise UserError(
            f"{key}: {source_recipe.name} begins with the policy of {source_recipe.policy.base.recipe}; run it first, "
            "and give its policy's folder as path"
        )
    if source_recipe.teacher is not None or frozen_models(source_recipe) or named_models(source_recipe):
        frozen_model = "a teacher" if source_recipe.teacher is not None else "a judge or a model by name"
        raise UserError(
            f"{key}: {source_recipe.name} has {frozen_model} itself; run it first, and give its policy's folder as path"
        )
    if role not in VOCABULARY_ROLES:
        return source_recipe
    if (source_recipe.data, source_recipe.validation) != (recipe.data, recipe.validation):
        raise UserError(
            f"{key}: {source_recipe.name} has other data than {recipe.name}; give its policy's folder as path"
        )
    begun = first_stage(recipe)
    own_settings, source_settings = ((each.policy.base, each.policy.tokenizer) for each in (begun, source_recipe))
    if own_settings[0] is None and own_settings != source_settings:
        raise UserError(f"{key}: {source_recipe.name} has another tokenizer than {recipe.name}")
    return source_recipe
