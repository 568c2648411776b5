"""The command `rewardflow reports`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.runtime.command_options import ExperimentOption, RunArgument
from flows.runtime.environment import state_folder
from models.base.errors import UserError

PANEL = "Runs"


def reports(
    run: RunArgument = "latest",
    hours: Annotated[int, typer.Option("--hours", min=1, max=168, help="Lifetime of the links, hours.")] = 24,
    experiment: ExperimentOption = "",
) -> None:
    """Print signed links to the reports that a run uploaded to S3 (`reports:` of its recipe), for users without keys.

    Anyone who has a link can read its file until the link expires.

    Example: `rewardflow reports latest --hours 48`
    """
    from tasks.state import storage
    from tasks.tracking import store, summaries, tags

    store.open_for_reading(state_folder())
    line = summaries.run_summary(experiment, run).line
    address = line.tags.get(tags.REPORTS)
    if address is None:
        raise UserError(
            f"run {line.run_id[:8]} {line.name}: it uploaded no reports; `reports: s3://...` in its recipe does"
        )
    for name, link in storage.signed_links(address, hours * 3600).items():
        print(f"{name}\n  {link}")
