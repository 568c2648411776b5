"""Commands for the model registry: list versions, promote, roll back, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import ByOption, ModelOption, SetOption, meant_policy
from flows.runtime.environment import state_folder, writable_state_folder
from models.base.errors import UserError


def promote(
    version: Annotated[int, typer.Argument(help="Version to make champion.")],
    model: ModelOption = "",
    by: ByOption = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For the record.")] = "by hand",
) -> None:
    """Make a version the champion by hand. The champion before it becomes `previous`.

    Example: `rewardflow promote 3`
    """
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    name = meant_policy(model)
    _tell(name, aliases.notice(name))
    new = aliases.promote(name, version, why=why, by=by)
    print(f"champion of {new.name}: version {new.version}")


def rollback(
    model: ModelOption = "",
    by: ByOption = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For the record.")] = "",
) -> None:
    """Make the previous champion the champion again. A second rollback swaps them back.

    Example: `rewardflow rollback`
    """
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    name = meant_policy(model)
    _tell(name, aliases.notice(name))
    new = aliases.rollback(name, by=by, why=why)
    print(f"champion of {new.name}: version {new.version}")


def models(
    name: Annotated[str, typer.Argument(help="Registered model; all of them, if left out.")] = "",
) -> None:
    """List the registered models with their versions, newest first: aliases, held-out accuracy, verdict.

    Example: `rewardflow models arithmetic-policy`
    """
    from tasks.tracking import store

    if not store.exists(state_folder()):
        print("no models yet; `rewardflow run RECIPE` trains one")
        return
    from flows.runtime.outcome import version_lines
    from tasks.tracking import registry

    store.open_for_reading(state_folder())
    known = registry.model_names()
    if name and name not in known:
        raise UserError(f"no model {name!r}; there is {', '.join(known) or 'none yet'}")
    print(version_lines([version for model in ([name] if name else known) for version in registry.versions(model)]))


def anchor(
    version: Annotated[int, typer.Argument(help="Version to hold guards to.")],
    model: ModelOption = "",
    by: ByOption = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For the record.")] = "by hand",
) -> None:
    """Set the version that the gate's guards are compared with next to the champion. Default: the first champion.

    Example: `rewardflow anchor 3`
    """
    from tasks.tracking import aliases, store

    store.configure(writable_state_folder())
    new = aliases.set_anchor(meant_policy(model), version, by=by, why=why)
    print(f"anchor of {new.name}: version {new.version}")


def power(
    recipe: Annotated[str, typer.Argument(help="Path of a recipe, or the name of one in recipes/.")],
    difference: Annotated[
        float | None, typer.Option("--difference", help="To be found, such as 0.02; a few, if left out.")
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Print how many problems the gate needs to detect a difference with 80 % power.

    Example: `rewardflow power arithmetic --difference 0.02`
    """
    from models.recipes.load import load_recipe
    from tasks.gate.power import gate_power
    from tasks.tracking import store

    checked = load_recipe(recipe, overrides or [])
    store.configure(state_folder())
    print(gate_power(checked, difference))


def export(
    version: Annotated[str, typer.Argument(help="Number of a version, NAME/VERSION, or an alias such as champion.")],
    folder: Annotated[Path, typer.Argument(help="Folder that is not there yet, or empty.")],
    model: ModelOption = "",
    licence: Annotated[
        str, typer.Option("--licence", "--license", metavar="ID", help="For the card, such as apache-2.0.")
    ] = "",
) -> None:
    """Write a policy to a self-contained folder: safetensors, tokenizer, model card. Print how to serve it with vLLM.

    Example: `rewardflow export champion /srv/models/arithmetic`
    """
    from tasks.pages.model_card import serve_commands
    from tasks.registered import export as exporting
    from tasks.tracking import recorded, store

    exporting.require_empty(folder)
    store.open_for_reading(state_folder())
    said = recorded.recorded(version, lambda: meant_policy(model))
    exporting.export(said, folder, licence)
    assert said.version is not None, "only versions are exported"
    gpu, cpu = serve_commands(str(folder.absolute()), exporting.served_name(said.version))
    print(f"{said.label}: {folder}\n\n{gpu}\n\non a CPU:\n{cpu}")


def _tell(name: str, noticed: str) -> None:
    """Print how others changed the aliases outside Rewardflow: a command that moves aliases acts on that state."""
    if noticed:
        print(f"{name}: {noticed}")


COMMANDS = (models, promote, rollback, anchor, power, export)
