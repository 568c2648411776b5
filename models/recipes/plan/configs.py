"""Configs of the policy and of a judge for a plan, read without loading weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.picture_processor import has_tower
from models.engines.vocabulary import read_config
from models.policies.build import config_of
from models.policies.folder import is_registered
from models.policies.hub import origin_of
from models.recipes.schema import Recipe
from models.recipes.stages import first_stage
from models.recipes.teachers import frozen_models, recipe_of


def policy_config(recipe: Recipe) -> tuple[Any, str]:
    """Read the config of the policy from its base, else from the size that the recipe gives. Returns it and its origin.

    Raises:
        UserError: the base is a registered version, which has to be resolved to a folder first, or it is not here and
            the recipe gives no size for it.
    """
    from transformers import AutoConfig

    first = first_stage(recipe)
    base, size = first.policy.named_base, first.policy.size
    if base is not None and is_registered(base):  # the recipe's size need not be that of the version
        raise UserError(f"policy.base: {base} is a registered version; give the folder of its files")
    if base is not None:
        try:
            origin = origin_of(base)
            trusted = recipe.policy.trust_remote_code
            config: Any = AutoConfig.from_pretrained(origin.name, revision=origin.revision, trust_remote_code=trusted)
            return (config if has_tower(config) else config.get_text_config()), base
        except (UserError, OSError, ValueError, KeyError):
            if size == type(size)():
                raise UserError(
                    f"policy.base: the config.json of {base} is not here; name a folder, or give policy.size and "
                    "policy.tokenizer.vocabulary as the base has them"
                ) from None
    origin_of_size = f"policy.size of the {'recipe' if first is recipe else f'first stage, {first.name}'}"
    if base is not None:
        origin_of_size += f"; {base} is not here"
    return config_of(size, first.policy.tokenizer.vocabulary), origin_of_size


def judge_config(recipe: Recipe, policy: Any) -> Any | None:
    """Return the config of the judge in this machine's memory; None without a judge, or if a server is used.

    Args:
        recipe: recipe of the run.
        policy: config of its policy, which is the judge if none is named.

    Raises:
        UserError: the judge's recipe cannot be planned.
    """
    judge = recipe.judge
    if judge is None or judge.address is not None:
        return None
    if (named := frozen_models(recipe).get("judge")) is None:
        return policy
    if named.path is not None:
        return read_config(Path(named.path))
    return policy_config(recipe_of(named, recipe, "judge"))[0]
