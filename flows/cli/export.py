"""The command `rewardflow export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, VersionArgument, meant_policy
from flows.runtime.environment import state_folder

PANEL = "Registry"


def export(
    version: VersionArgument,
    folder: Annotated[Path, typer.Argument(help="Folder to write. It must be empty or not exist.")],
    model: ModelOption = "",
    licence: Annotated[
        str,
        typer.Option(
            "--licence", "--license", metavar="ID", help="Licence to state on the model card, such as apache-2.0."
        ),
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
    record = recorded.recorded(version, lambda: meant_policy(model))
    exporting.export(record, folder, licence)
    assert record.version is not None, "only versions are exported"
    gpu, cpu = serve_commands(str(folder.absolute()), exporting.served_name(record.version))
    print(f"{record.label}: {folder}\n\n{gpu}\n\non a CPU:\n{cpu}")
