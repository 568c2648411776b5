"""The command `rewardflow export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import (
    FormatOption,
    GgufTypeOption,
    LicenceOption,
    ModelOption,
    VersionArgument,
    meant_policy,
    require_gguf_for_type,
)
from flows.runtime.environment import state_folder

PANEL = "Registry"


def export(
    version: VersionArgument,
    folder: Annotated[Path, typer.Argument(help="Folder to write. It must be empty or not exist.")],
    model: ModelOption = "",
    licence: LicenceOption = "",
    form: FormatOption = "safetensors",
    kind: GgufTypeOption = None,
) -> None:
    """Write a policy to a self-contained folder: safetensors or GGUF, tokenizer, model card. Print how to serve it.

    Example: `rewardflow export champion /srv/models/arithmetic`
    """
    require_gguf_for_type(form, kind)
    from tasks.pages.model_card import llama_server_command, serve_commands
    from tasks.registered import export as exporting
    from tasks.tracking import recorded, store

    exporting.require_empty(folder)
    store.open_for_reading(state_folder())
    record = recorded.recorded(version, lambda: meant_policy(model))
    if form == "gguf":
        file = exporting.export_gguf(record, folder, kind, licence)
        assert record.version is not None, "only versions are exported"
        command = llama_server_command(str(file.absolute()), exporting.served_name(record.version))
        print(f"{record.label}: {file}\n\n{command}")
        return
    exporting.export(record, folder, licence)
    assert record.version is not None, "only versions are exported"
    gpu, cpu = serve_commands(str(folder.absolute()), exporting.served_name(record.version))
    print(f"{record.label}: {folder}\n\n{gpu}\n\non a CPU:\n{cpu}")
