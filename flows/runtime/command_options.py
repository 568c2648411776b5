"""Arguments and options that several commands share, and functions that resolve their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.runtime.environment import state_folder
from models.base.errors import UserError

if TYPE_CHECKING:
    from flows.services.place import ServiceFolder


def complete_recipes(incomplete: str) -> list[str]:
    """Return the names of recipes that begin with `incomplete`, for the shell; if there is none, files and folders."""
    from models.recipes.find import recipe_names

    if names := [name for name in recipe_names() if name.startswith(incomplete)]:
        return names
    places = sorted(Path().glob(f"{incomplete}*")) if incomplete and not incomplete.startswith(("/", "~")) else []
    return [
        f"{place}/" if place.is_dir() else str(place) for place in places if place.is_dir() or place.suffix == ".yaml"
    ]


RecipeArgument = Annotated[
    str, typer.Argument(help="Path of a recipe, or the name of one in recipes/.", autocompletion=complete_recipes)
]
VersionArgument = Annotated[
    str, typer.Argument(help="Number of a version, NAME/VERSION, or an alias such as champion.")
]
WaitingVersion = Annotated[int, typer.Argument(help="Version that waits for approval.")]
RunArgument = Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")]
ExperimentOption = Annotated[
    str, typer.Option("--experiment", "-e", help="Only runs of this recipe. Default: all recipes.")
]
ModelOption = Annotated[
    str, typer.Option("--model", help="Registered model. Default: the only policy that is not of a smoke run.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a key of the recipe.")
]

LicenceOption = Annotated[
    str,
    typer.Option(
        "--licence", "--license", metavar="ID", help="Licence to state on the model card, such as apache-2.0."
    ),
]
ExportFormat = Literal["safetensors", "gguf"]
GgufMatrixType = Literal["f32", "f16", "bf16", "q8_0"]
FormatOption = Annotated[
    ExportFormat,
    typer.Option("--format", help="Format of the weights: a model folder, or one GGUF file for llama.cpp."),
]
GgufTypeOption = Annotated[
    GgufMatrixType | None,
    typer.Option("--type", help="Type of the matrices in a GGUF file. Default: the type of the version's weights."),
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
    """Return the name of the registered model: the given one, or the only registered policy.

    Policies of smoke runs count only if there is no other, so a smoke run before the first real one is harmless.

    Raises:
        UserError: no name is given, and no policy or several are registered.
    """
    if model:
        return model
    from tasks.tracking import registry

    names = registry.policy_names()
    real = [name for name in names if not name.endswith("-smoke-policy")]
    if len(real or names) == 1:
        return (real or names)[0]
    if not names:
        raise UserError("no policy is registered yet; `rewardflow run RECIPE` trains one")
    raise UserError(f"which policy? name one with --model: {', '.join(names)}")


def require_gguf_for_type(form: ExportFormat, kind: GgufMatrixType | None) -> None:
    """Check that a type of GGUF matrices is given only with --format gguf. Raise UserError otherwise."""
    if kind is not None and form != "gguf":
        raise UserError("--type is for GGUF files; add --format gguf")


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
