"""A reward model as the evaluations take it: fitted in this run, or the version that a policy learned from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from models.errors import UserError
from models.recipe.schema import Recipe
from tasks.registered.files import registered_files
from tasks.runner.step import StepResult
from tasks.tracking import registry, tags

_LOG = logging.getLogger("rewardflow.reward_model")


class RewardModelFiles(NamedTuple):
    """What an evaluation asks of a reward model."""

    folder: Path
    """A model folder; not to be changed."""
    digest: str
    """Content hash of the folder."""
    model_id: str
    """Its LoggedModel."""


def made_reward_model(made: StepResult | None) -> RewardModelFiles | None:
    """The reward model of a run; None where it fitted none."""
    if made is None:
        return None
    return RewardModelFiles(Path(made.folder) / "reward_model", made.digest, made.links["model_id"])


def registered_reward_model(named: str) -> RewardModelFiles:
    """Fetch the files of a version, NAME/VERSION.

    Raises:
        UserError: there is no such version, or its files are gone or are not what was registered.
    """
    name, _, number = named.rpartition("/")
    if not name or not number.isdecimal():
        raise UserError(f"{named!r} is no version of a reward model")
    version = registry.version_info(name, int(number))
    folder, digest = registered_files(version)
    return RewardModelFiles(folder, digest, version.model_id)


def reward_model_of(policy: registry.VersionInfo, recipe: Recipe) -> tuple[str, RewardModelFiles | None]:
    """The reward model that a policy learned from: NAME/VERSION and its files, nothing where it is not to be had or
    the recipe says no longer how one reads."""
    named = registry.facts_of(policy).get(tags.REWARD_MODEL_VERSION, "")
    if not named or recipe.reward_model is None:
        return "", None
    try:
        return named, registered_reward_model(named)
    except UserError as error:
        _LOG.warning("nothing scores the champion's answers: %s", error)
        return "", None
