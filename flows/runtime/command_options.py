"""Arguments and options that several commands share, and functions that resolve their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.environment import state_folder
from models.base.errors import UserError

if TYPE_CHECKING:
    from flows.services.place import ServiceFolder

RecipeArgument = Annotated[str, typer.Argument(help="Path of a recipe, or the name of one in recipes/.")]
VersionArgument = Annotated[
    str, typer.Argument(help="Number of a version, NAME/VERSION, or an alias such as champion.")
]
WaitingVersion = Annotated[int, typer.Argument(help="Version that waits for approval.")]
RunArgument = Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")]
ExperimentOption = Annotated[
    str, typer.Option("--experiment", "-e", help="Only runs of this recipe. Default: all recipes.")
]
ModelOption = Annotated[str, typer.Option("--model", help="Registered model. Default: the only registered policy.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a key of the recipe.")
]

ByOption = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides. Default: the user who is logged in.")]
DecidedBy = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Reason, for the audit log.")]

MlflowPort = Annotated[int, typer.Option("--mlflow-port", help="Port of the MLflow server on 127.0.0.1.")]
PrefectPort = Annotated[int, typer.Option("--prefect-port", help="Port of the Prefect server on 127.0.0.1.")]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of the services' data. Default: `services` in the state folder."),
]


def meant_policy(model: str) -> str:
    """Return the name of the registered model: the given one, or the only registered policy."""
    if model:
        return model
    from tasks.tracking import registry

    names = registry.policy_names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise UserError("no policy is registered yet; `rewardflow run RECIPE` trains one")
    raise UserError(f"which policy? name one with --model: {', '.join(names)}")


def path_overrides(section: str, paths: Sequence[Path], tested: Sequence[Path] | None) -> list[str]:
    """Return the overrides of a recipe that name a user's files, as KEY=VALUE.

    Args:
        section: section of the recipe that `paths` belong to, such as `data`.
        paths: files or folders.
        tested: files that are held out from training, if any.
    """
    named = {f"{section}.path": paths, **({"data.test_path": tested} if tested else {})}
    return [f"{key}={json.dumps([str(path) for path in files])}" for key, files in named.items()]


def print_noticed(name: str, noticed: str) -> None:
    """Print the changes of a model's aliases that were made outside Rewardflow, before a command moves aliases."""
    if noticed:
        print(f"{name}: {noticed}")


def service_folder(folder: Path | None) -> ServiceFolder:
    """Return the given folder of the services, or the one in the state folder."""
    from flows.services.place import ServiceFolder

    return ServiceFolder((folder or state_folder() / "services").absolute())
