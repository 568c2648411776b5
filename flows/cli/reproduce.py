"""The command `rewardflow reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.runtime.command_options import ModelOption, VersionArgument, meant_policy
from flows.runtime.environment import state_folder
from models.base.disk import require_space
from models.base.errors import UserError
from tasks.runner import interrupt

PANEL = "Train"

NOT_HERE = 2
"""Exit status of a reproduction that cannot be run here; 1 means that the result differs."""


def reproduce(
    version: VersionArgument,
    model: ModelOption = "",
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="Largest allowed difference of a metric. Weights must be equal.")
    ] = 1e-6,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the outputs, in `reproductions` of the state folder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    noted: Annotated[bool, typer.Option("--note/--no-note", help="Record the result on the version.")] = True,
) -> None:
    """Train a version again from its data and compare the weights bit for bit.

    The training uses the recorded commit, data, recipe and seed. Nothing is taken from earlier steps, nothing is
    registered, and no alias moves. The result is written on the version's page. Exit status 0: identical; 1: something
    differs, and the output lists it; 2: the version cannot be trained again here.

    Example: `git checkout COMMIT`, then `rewardflow reproduce 3`
    """
    from flows.reproduction import as_json as whole
    from flows.reproduction import reproducible_version, reproduction_lines, warning
    from flows.runtime import console
    from flows.servers import temporary_server
    from tasks.registered.reproduction import record_reproduction, reproduction
    from tasks.tracking import store

    try:
        require_space(state_folder())
        store.open_for_reading(state_folder())
        target = reproducible_version(version, lambda: meant_policy(model), Path.cwd())
        if line := warning(target.surroundings):
            print(line, file=sys.stderr)
        server_answers = temporary_server.start(state_folder())
        from flows.reproduce import retrained

        console.quiet(caller_prints_error=True)
        server_answers()
        label, run = target.record.label, target.record.run[:12]
        with retrained(label, run, target.to_train, target.precisions, keep) as retraining:
            interrupt.raise_again()
            comparison = reproduction(
                target.record,
                target.recipe,
                target.data,
                target.original,
                retraining.folder,
                retraining.metrics,
                target.surroundings,
                tolerance,
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(NOT_HERE) from None
    print(whole(comparison) if as_json else reproduction_lines(comparison))
    if noted:
        try:
            record_reproduction(target.record, comparison)
        except UserError as error:
            print(f"not noted on the version: {error}", file=sys.stderr)
    if keep:
        print(f"made: {retraining.folder}", file=sys.stderr)
    if not comparison.identical:
        raise typer.Exit(1)
