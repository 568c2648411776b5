"""Checks that the files a recipe names exist, made before anything starts: data, base model, masks, teachers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from models.base.errors import UserError, shortened
from models.base.source_code import code_file
from models.base.user_code.contain import UserCodeError, contained, leaving
from models.base.weights_header import tensor_shapes
from models.datasets.data_files import files_of
from models.policies.base_folder import NEW_POLICY_MODULES, check_base_folder, check_targets
from models.policies.build import StageSettings
from models.policies.folder import check_classifier_code, check_model_folder, given_folder, is_registered
from models.policies.hub import check_hub_id
from models.policies.teacher import check_vocabulary
from models.recipes.named_models import check_references
from models.recipes.room import check_room
from models.recipes.schema import Recipe
from models.recipes.stages import first_stage, stages_before
from models.recipes.teachers import VOCABULARY_ROLES, all_frozen, key_of, recipe_of
from models.text.rendering import ChatTemplate
from models.text.tokenizer import load_tokenizer


def require_files(recipe: Recipe) -> None:
    """Check that the files named by a recipe exist, so that a run does not fail after its first steps.

    Raises:
        UserError: a data file is missing or of an unknown kind, policy.base is a folder without a complete model or a
            hub id that cannot be fetched, adapters target no module, the masks of a subnetwork are missing, a part's
            own file does not work, a stage before the recipe is wrong, a teacher can neither be found nor be made, or
            code shipped with a model tries to end the process.
    """
    try:
        with leaving("code of the recipe's models", ways=SystemExit):
            _require(recipe)
    except UserCodeError as error:
        raise UserError(str(error)) from None


def _require(recipe: Recipe) -> None:
    files_of(recipe.data.path or ())
    files_of(recipe.data.test_path or (), "data.test_path")
    modules = _check_base(recipe) if recipe.policy.base is not None else NEW_POLICY_MODULES
    if recipe.policy.lora is not None and modules is not None:
        check_targets(recipe.policy.lora.targets, modules)
    if recipe.policy.chat and first_stage(recipe).policy.base is None:
        raise UserError("policy.chat: a policy made from its size has no chat template; set policy.base or chat: false")
    masks = recipe.policy.subnetwork.masks if recipe.policy.subnetwork else None
    if masks is not None:
        _check_masks(Path(masks))
    for part in (recipe.rollouts, *recipe.rewards):
        try:
            contained(code_file(part), part.try_out)
        except UserCodeError as error:
            raise UserError(f"{part.slot}.{part.name}: {error}") from None
    _check_teachers(recipe)


def _check_stages(recipe: Recipe) -> Sequence[str] | None:
    """Check the files of the stages before a recipe, and its room. Return the names of the policy's modules, None if
    the first stage begins with a model of the hub or a registered version."""
    *_, stage = stages_before(recipe)
    require_files(stage)
    first = first_stage(stage)
    if first.policy.base is None:
        try:
            check_room(recipe, first.policy.size.positions)
        except ValueError as error:
            raise UserError(str(error)) from None
        return NEW_POLICY_MODULES
    return _check_base(recipe.model_copy(update={"policy": replace(recipe.policy, base=first.policy.base)}))


def _check_base(recipe: Recipe) -> Sequence[str] | None:
    """Check that the base is available and has enough room. Return the names of its modules, None for one of the hub
    or a registered version."""
    if isinstance(recipe.policy.base, StageSettings):
        return _check_stages(recipe)
    base = recipe.policy.base or ""
    if is_registered(base):  # looked for where the registry is known (tasks/registered/base.py)
        return None
    folder = given_folder(base)
    if folder is None:
        check_hub_id(base)
        return None
    try:
        positions, modules = check_base_folder(folder, chat=recipe.policy.chat)
        if recipe.policy.chat:
            tokenizer = load_tokenizer(folder, trust_remote_code=recipe.policy.trust_remote_code)
            ChatTemplate(tokenizer).check(("user", *(("system",) if recipe.policy.system else ())))
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


def _check_teachers(recipe: Recipe) -> None:
    """Check that the models that the recipe learns from exist or can be made. As far as their tokens are known, these
    must be the policy's."""
    check_references(recipe)
    for role, settings in all_frozen(recipe).items():
        if settings.recipe is not None:
            require_files(recipe_of(settings, recipe, role))
            continue
        assert settings.path is not None, "without a recipe there is a path"
        folder, key = Path(settings.path).expanduser(), f"{key_of(role)}.path"
        try:
            check_model_folder(folder)
        except UserError as error:
            raise UserError(f"{key}: {error}") from None
        named = first_stage(recipe).policy.named_base if role in VOCABULARY_ROLES else None
        base = given_folder(named) if named else None
        if base is not None:
            trusted = recipe.policy.trust_remote_code
            ours, theirs = (load_tokenizer(place, trust_remote_code=trusted) for place in (base, folder))
            check_vocabulary(folder, theirs, ours, key)
