"""Policies and a recipe as a command names them: versions or model folders, and the recipe of the first version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.runtime.command_options import meant_policy
from models.base.errors import UserError
from tasks.registered.recorded_recipe import recorded_arguments
from tasks.tracking import recorded


@dataclass
class NamedPolicies:
    """Addresses of policies, and the recipe that they are used with."""

    recipe: str
    """Name or path of the recipe; empty if all policies are folders and the command names none."""
    addresses: list[str] = field(default_factory=list)
    """NAME/VERSION or an absolute folder of each policy, [policies]."""
    overrides: list[str] = field(default_factory=list)
    """Recorded overrides, if the recipe is that of a version."""


def named_policies(given: Sequence[str], model: str, recipe: str, use: str) -> NamedPolicies:
    """Resolve policies; the tracking store must be open if one of them is not a folder.

    Args:
        given: folder, number of a version, NAME/VERSION or alias of each policy, [policies].
        model: value of the option --model.
        recipe: value of the option --recipe; empty: the recipe of the first version.
        use: past participle for the error message, such as `merged`.

    Raises:
        UserError: a policy is neither a folder nor a version.
    """
    named = NamedPolicies(recipe)
    for each in given:
        folder = Path(each).expanduser()
        if folder.is_dir():
            named.addresses.append(str(folder.absolute()))
            continue
        record = recorded.recorded(each, lambda: meant_policy(model))
        if record.version is None:
            raise UserError(f"{record.label} is not a version; `rewardflow models` lists what can be {use}")
        named.addresses.append(f"{record.version.name}/{record.version.version}")
        if not named.recipe:
            named.recipe, named.overrides = recorded_arguments(record)
    return named
