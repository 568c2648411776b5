"""Commands that show runs and versions: list, show, compare, trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.runtime.environment import state_folder
from models.base.errors import UserError


def runs(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe; the runs of all, if left out.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many, newest first.")] = 20,
) -> None:
    """List the newest runs of all recipes or of one.

    Example: `rewardflow runs arithmetic --limit 5`
    """
    from tasks.tracking import store

    if not store.exists(state_folder()):
        print("no runs yet; `rewardflow run RECIPE` makes the first")
        return
    from flows.runtime.outcome import run_lines
    from tasks.tracking import summaries

    store.open_for_reading(state_folder())
    print(run_lines(summaries.recent_runs(recipe, limit)))


def show(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")] = "latest",
    experiment: Annotated[
        str, typer.Option("--experiment", "-e", help="Only among the runs of this recipe; of all, if left out.")
    ] = "",
) -> None:
    """Show a run: its verdict, steps and data, and its address in the MLflow UI.

    Example: `rewardflow show latest`
    """
    from flows.runtime.outcome import print_run
    from tasks.tracking import store, summaries

    store.open_for_reading(state_folder())
    print_run(summaries.run_summary(experiment, run), state_folder())


def lineage(
    version: Annotated[int | None, typer.Argument(help="Version of the policy.")] = None,
    data: Annotated[
        str, typer.Option("--data", metavar="HASH", help="Instead: who learned from this version of the data.")
    ] = "",
    model: ModelOption = "",
) -> None:
    """Print the chain from the raw data's hash to the alias; with --data, the models trained on a version of the data.

    Examples: `rewardflow lineage 1`, `rewardflow lineage --data e2775551`
    """
    from tasks.tracking import data_use, store
    from tasks.tracking import lineage as chain

    if (version is None) == (not data):
        raise UserError("name either a version or, with --data, a version of the data")
    store.open_for_reading(state_folder())
    if version is None:
        print(data_use.render(data, data_use.uses_of(data)))
        return
    print(chain.render(chain.lineage(meant_policy(model), version)))


def diff(
    before: Annotated[
        str, typer.Argument(metavar="A", help="Version, alias, NAME/VERSION, or a run's id, its beginning or its name.")
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="What it is compared with, named in the same way.")],
    model: ModelOption = "",
    page: Annotated[Path | None, typer.Option("--page", help="HTML file to write, with every row and answer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON.")] = False,
) -> None:
    """Show the differences between two versions or runs: code, data, recipe, packages, metrics, answers that flipped.

    Example: `rewardflow diff previous champion --page diff.html`
    """
    from flows.difference import difference_lines, write_page
    from tasks.registered.difference import as_json as whole
    from tasks.registered.difference import difference
    from tasks.tracking import recorded, store

    store.open_for_reading(state_folder())
    sides = [recorded.recorded(wanted, lambda: meant_policy(model)) for wanted in (before, after)]
    said = difference(sides[0], sides[1], Path.cwd())
    if page is not None:
        write_page(page, said)
    print(whole(said) if as_json else difference_lines(said) + (f"\n\npage: {page}" if page else ""))


def reports(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")] = "latest",
    hours: Annotated[int, typer.Option("--hours", min=1, max=168, help="For how long the links are good.")] = 24,
    experiment: Annotated[
        str, typer.Option("--experiment", "-e", help="Only among the runs of this recipe; of all, if left out.")
    ] = "",
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


COMMANDS = (runs, show, diff, lineage, reports)
