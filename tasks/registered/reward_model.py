"""Reward models to score with: the one that a run fitted, or the registered version that a policy learned from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from models.base.errors import UserError
from models.recipes.schema import Recipe
from tasks.registered.files import registered_files
from tasks.runner.step import StepResult
from tasks.tracking import registry, tags

_LOG = logging.getLogger("rewardflow.reward_model")


class RewardModelFiles(NamedTuple):
    """Folder, content hash and LoggedModel of a reward model."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder."""
    model_id: str
    """Id of its LoggedModel."""


def made_reward_model(made: StepResult | None) -> RewardModelFiles | None:
    """Return the reward model of a run; None if it fitted none."""
    if made is None:
        return None
    return RewardModelFiles(Path(made.folder) / "reward_model", made.digest, made.links["model_id"])


def registered_reward_model(named: str) -> RewardModelFiles:
    """Fetch the files of the reward model version NAME/VERSION.

    Raises:
        UserError: the version does not exist, or its files are gone or are not the registered ones.
    """
    name, _, number = named.rpartition("/")
    if not name or not number.isdecimal():
        raise UserError(f"{named!r} is not a version of a reward model")
    version = registry.version_info(name, int(number))
    folder, digest = registered_files(version)
    return RewardModelFiles(folder, digest, version.model_id)


def reward_model_of(policy: registry.VersionInfo, recipe: Recipe) -> tuple[str, RewardModelFiles | None]:
    """Return NAME/VERSION and files of the reward model that a policy learned from; "" and None without one.

    That is also the result if the model is not available or the recipe no longer has a reward model.
    """
    named = registry.facts_of(policy).get(tags.REWARD_MODEL_VERSION, "")
    if not named or recipe.reward_model is None:
        return "", None
    try:
        return named, registered_reward_model(named)
    except UserError as error:
        _LOG.warning("nothing scores the champion's answers: %s", error)
        return "", None
