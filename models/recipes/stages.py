"""Chains of recipes: each stage is a whole run, and the next one begins with the policy that it made.

`policy.base: {recipe: NAME, set: [...]}` makes NAME the stage before a recipe. Stages may have different data, rewards
and methods. The tokenizer is that of the first stage.
"""

from __future__ import annotations

from models.base.errors import UserError
from models.policies.build import PolicySettings, StageSettings
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe

MOST_STAGES = 20
"""Maximum number of recipes before one; a longer chain is treated as a mistake."""
KEY = "policy.base.recipe"


def stages_before(recipe: Recipe) -> list[Recipe]:
    """Load the recipes that run before one and make the policy that it begins with, the first stage first.

    Returns:
        The recipes; none if the policy begins otherwise.

    Raises:
        UserError: a recipe of the chain is wrong, two stages have one name, as in a circle, or size or tokenizer
            differ from those of the first stage.
    """
    stages: list[Recipe] = []
    current = recipe
    while isinstance(base := current.policy.base, StageSettings):
        try:
            current = load_recipe(base.recipe, base.set)
        except UserError as error:
            raise UserError(f"{KEY}: {error}") from None
        names = [stage.name for stage in (recipe, *stages)]
        if current.name in names:
            raise UserError(
                f"{KEY}: the chain {' -> '.join([*names, current.name])} has two stages of one name; it must not "
                "return to a recipe, and a recipe with other settings needs name=... in policy.base.set"
            )
        stages.append(current)
        if len(stages) > MOST_STAGES:
            raise UserError(f"{KEY}: more than {MOST_STAGES} recipes run before {recipe.name}")
    for stage in (recipe, *stages)[:-1]:
        _check_shape(stage, stages[-1].policy)
    return stages[::-1]


def first_stage(recipe: Recipe) -> Recipe:
    """Return the first recipe of the chain that ends with a recipe; the recipe itself if no stage runs before it.

    Raises:
        UserError: see `stages_before`.
    """
    return next(iter(stages_before(recipe)), recipe)


def _check_shape(stage: Recipe, first: PolicySettings) -> None:
    """Check that a later stage sets neither another size nor another tokenizer than the first stage has."""
    plain = PolicySettings()
    for key in ("size", "tokenizer"):
        own = getattr(stage.policy, key)
        if own not in (getattr(plain, key), getattr(first, key)):
            raise UserError(f"policy.{key}: {stage.name} has the {key} of the first stage of its chain; leave it out")
