"""Read a recipe: YAML, what it extends, overrides from the command line; then one check of the whole.

An error is one line with the file, the path inside the YAML and, for an unknown key, the nearest known one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from models.datasets.raw import files_of
from models.errors import UserError, shortened
from models.policy.base_folder import NEW_POLICY_MODULES, check_base_folder, check_targets
from models.policy.folder import check_classifier_code, given_folder, is_registered
from models.policy.hub import check_hub_id
from models.policy.weights_header import tensor_shapes
from models.recipe.explain import explain
from models.recipe.find import find_recipe
from models.recipe.layers import read_layers
from models.recipe.room import check_room
from models.recipe.schema import Recipe, recipe_type


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in `path` with `overrides` such as `schedule.rounds=20` on top.

    Args:
        path: a YAML file, or the name of one in recipes/.
        overrides: `key.path=value` each, the value in YAML.

    Raises:
        UserError: no such file, not valid YAML, an unknown key, a wrong value or an impossible combination.
    """
    file = find_recipe(path)
    raw = read_layers(file, overrides)
    raw.setdefault("name", file.stem)
    try:
        return recipe_type().model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{file}: {explain(error, recipe_type())}") from None
    except UserError as error:  # a section's own check
        raise UserError(f"{file}: {error}") from None


def require_files(recipe: Recipe) -> None:
    """Make sure that the files which a recipe names are there, so that a run does not find out after its first steps.

    Raises:
        UserError: a data file is missing or of an unknown kind, policy.base is a folder that holds no whole model or
            a hub id that cannot be had, adapters aim at no module, the masks of a subnetwork are not there, or a
            reward's own file does not work.
    """
    files_of(recipe.data.path or ())
    files_of(recipe.data.test_path or (), "data.test_path")
    modules = _check_base(recipe) if recipe.policy.base is not None else NEW_POLICY_MODULES
    if recipe.policy.lora is not None and modules is not None:
        check_targets(recipe.policy.lora.targets, modules)
    if recipe.policy.chat and recipe.policy.base is None:
        raise UserError("policy.chat: a policy made from its size has no chat template; set policy.base or chat: false")
    masks = recipe.policy.subnetwork.masks if recipe.policy.subnetwork else None
    if masks is not None:
        _check_masks(Path(masks))
    for reward in recipe.rewards:
        reward.try_out()


def _check_base(recipe: Recipe) -> Sequence[str] | None:
    """Make sure that the base can be had and has room. Returns the names of its modules, None for one of the hub."""
    base = recipe.policy.base or ""
    if is_registered(base):  # looked for where the registry is known (tasks/registered_base.py)
        return None
    folder = given_folder(base)
    if folder is None:
        check_hub_id(base)
        return None
    try:
        positions, modules = check_base_folder(folder, chat=recipe.policy.chat)
        check_room(recipe, positions)
        if recipe.policy.trust_remote_code and recipe.reward_model is not None:
            check_classifier_code(folder)
    except (UserError, ValueError) as error:
        raise UserError(f"policy.base: {error}") from None
    return modules


def _check_masks(file: Path) -> None:
    try:
        if not file.is_file():
            raise UserError(f"{shortened(file)}: no such file")
        tensor_shapes(file)
    except (UserError, OSError) as error:
        raise UserError(f"policy.subnetwork.masks: {error}") from None


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as it would stand in JSON, every default written out."""
    data: dict[str, Any] = TypeAdapter(recipe_type()).dump_python(recipe, mode="json", by_alias=True)  # type: ignore[arg-type]
    return data


def digest(*sections: Any) -> str:
    """SHA-256 of parts of a recipe in canonical JSON."""
    return hashlib.sha256(json.dumps(sections, sort_keys=True, default=str).encode()).hexdigest()
