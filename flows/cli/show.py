"""The command `rewardflow show`."""

from __future__ import annotations

from flows.runtime.command_options import ExperimentOption, RunArgument
from flows.runtime.environment import state_folder

PANEL = "Runs"


def show(
    run: RunArgument = "latest",
    experiment: ExperimentOption = "",
) -> None:
    """Show a run: its verdict, steps and data, and its address in the MLflow UI.

    Example: `rewardflow show latest`
    """
    from flows.runtime.outcome import print_run
    from tasks.tracking import store, summaries

    store.open_for_reading(state_folder())
    print_run(summaries.run_summary(experiment, run), state_folder())
