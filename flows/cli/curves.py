"""The command `rewardflow curves`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.runtime.command_options import ExperimentOption
from flows.runtime.environment import state_folder

PANEL = "Runs"


def curves(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs or comparisons: id, its beginning, name, or `latest`.")
    ],
    metric: Annotated[str, typer.Option("--metric", help="Metric of the rounds.")] = "reward/total",
    by: Annotated[
        Literal["recipe", "run"], typer.Option("--by", help="Trainings that make one curve: of a recipe, or of a run.")
    ] = "recipe",
    picture: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Picture to write. Default: none.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Table of all points to write. Default: none.")
    ] = None,
    experiment: ExperimentOption = "",
) -> None:
    """Compare a metric of runs round by round: interquartile mean over trainings with 95 % bands.

    A comparison counts as all of its trainings. The printed table has the value at the last common round, and the area
    under the curve: its mean over the rounds.

    Example: `rewardflow curves latest --metric reward/exact_answer --png curves.png`
    """
    from models.evaluation.learning_curves import curve_band
    from tasks.pages.curve_files import curve_lines, write_picture, write_table
    from tasks.tracking import store
    from tasks.tracking.curves import curve_of, trainings_of

    store.open_for_reading(state_folder())
    points: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for wanted in runs:
        for training in trainings_of(wanted, experiment):
            label = training.method if by == "recipe" else f"{training.name} {training.run_id[:8]}"
            points.setdefault(label, {})[training.run_id] = curve_of(training, metric)
    bands = {label: curve_band(list(trainings.values())) for label, trainings in points.items()}
    if picture is not None:
        write_picture(picture, bands, metric)
    if table is not None:
        write_table(table, bands)
    print(curve_lines(bands, metric))
    for name, file in (("picture", picture), ("table", table)):
        if file is not None:
            print(f"{name:<10} {file}")
