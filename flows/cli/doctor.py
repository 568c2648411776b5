"""The command `rewardflow doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Operations"


def doctor(deep: Annotated[bool, typer.Option("--deep", help="Also import the large packages.")] = False) -> None:
    """Check this machine: versions, devices, disk, data, ports. Exit status 1 if something is wrong.

    Example: `rewardflow doctor`
    """
    from flows.doctor import diagnose, table

    findings = diagnose(deep=deep)
    print(table(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
