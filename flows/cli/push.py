"""The command `rewardflow push`."""

from __future__ import annotations

import tempfile
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
from flows.runtime.environment import writable_state_folder

PANEL = "Registry"


def push(
    version: VersionArgument,
    repository: Annotated[str, typer.Argument(metavar="REPO_ID", help="Repository on the hub, OWNER/NAME.")],
    private: Annotated[
        bool, typer.Option("--private", help="Create the repository as private. An existing one must be private.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Upload. Default: only list what would be uploaded.")] = False,
    model: ModelOption = "",
    licence: LicenceOption = "",
    form: FormatOption = "safetensors",
    kind: GgufTypeOption = None,
) -> None:
    """Upload a policy's export to a repository of the Hugging Face hub; without --yes, list its files and sizes.

    The token is that of HF_TOKEN or of `hf auth login`. HF_ENDPOINT names another hub.

    Example: `rewardflow push champion my-team/arithmetic --private --yes`
    """
    require_gguf_for_type(form, kind)
    from tasks.host.clock import stamp
    from tasks.registered import push as pushing
    from tasks.registered.export import export, export_gguf
    from tasks.tracking import recorded, registry, store, tags

    pushing.require_repository(repository)
    home = writable_state_folder()
    (store.configure if yes else store.open_for_reading)(home)
    record = recorded.recorded(version, lambda: meant_policy(model))
    with tempfile.TemporaryDirectory(dir=home, prefix="pushing-") as scratch:
        folder = Path(scratch) / repository.rpartition("/")[2]
        if form == "gguf":
            export_gguf(record, folder, kind, licence)
        else:
            export(record, folder, licence, share=True)
        files = pushing.files_of(folder)
        visible = "private" if private else "public unless it exists as private"
        print(f"{record.label} -> {pushing.target_address(repository)} ({visible})\n")
        print(pushing.listing(files))
        if not yes:
            token = "a token is set" if pushing.has_token() else "no token is set: set HF_TOKEN or run `hf auth login`"
            print(f"\nNothing was uploaded ({token}). Add --yes to upload.")
            return
        done = pushing.push(folder, repository, f"Upload {record.label}", private=private)
    assert record.version is not None, "only versions are exported"
    facts = {tags.PUSHED: f"{done.address}, commit {done.commit}, {form}, {stamp()}"}
    registry.annotate(record.version.name, record.version.version, facts)
    print(f"\nuploaded: {done.address}, commit {done.commit}")
