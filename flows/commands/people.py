"""Commands for review by people: let them compare answers of two versions, and turn their choices into data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.options import ModelOption, meant_policy
from flows.runtime.environment import writable_state_folder
from models.base.errors import UserError

if TYPE_CHECKING:
    from tasks.tracking.registry import VersionInfo

app = typer.Typer(no_args_is_help=True, help="Let people compare answers of two versions; what they say becomes data.")


@app.command()
def queue(
    candidate: Annotated[int | None, typer.Argument(help="Version; the newest, if left out.")] = None,
    against: Annotated[
        int | None, typer.Option("--against", help="Version; the champion, or the one before, if left out.")
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=1, max=1000, help="Pairs of answers, at most.")] = 32,
    reviewers: Annotated[
        list[str] | None,
        typer.Option("--reviewer", metavar="LOGIN", help="Who is asked, each with a queue; anybody, if left out."),
    ] = None,
    model: ModelOption = "",
) -> None:
    """Sample answers of two versions to the same training prompts, put them in a review queue and print its address.

    The page does not show which version gave which answer. `rewardflow review collect` collects the reviews.

    Example: `rewardflow review queue --pairs 32 --reviewer ann --reviewer bob`
    """
    from flows.runtime.console import quiet_transformers
    from flows.servers.servers import page_address
    from tasks.people.ask_people import ask
    from tasks.people.paired_samples import sampled_pairs
    from tasks.tracking import registry, store

    home = writable_state_folder()
    store.configure(home)
    quiet_transformers()
    name = meant_policy(model)
    ours = registry.version_info(name, candidate) if candidate else registry.versions(name)[0]
    theirs = registry.version_info(name, against) if against else _other(ours)
    for asked in ask(ours, theirs, lambda: sampled_pairs(ours, theirs, pairs, Path.cwd()), reviewers or []):
        review = asked.review
        state = f"{len(review.pairs)} pairs" + ("" if asked.new else ", there already")
        print(f"{review.title}, {review.reviewer or 'anybody'}: {state}")
        print(f"  {page_address(home, 'mlflow')}{asked.page}")


@app.command()
def collect(
    name: Annotated[str, typer.Option("--name", help="Name of the data set; DATA-reviewed, if left out.")] = "",
    model: ModelOption = "",
) -> None:
    """Write the reviews as preference pairs, pinned by DVC and a commit, and show how far the reviewers agree.

    Reviews that were collected before are not written twice.

    Example: `rewardflow review collect`
    """
    from tasks.pages.review_page import review_lines
    from tasks.people.collect_reviews import collect as collect_answers
    from tasks.tracking import registry, store

    store.configure(writable_state_folder())
    collected = collect_answers(registry.versions(meant_policy(model))[0], Path.cwd(), name)
    for what in collected.said:
        print(what.title)
        for question, answer in review_lines(what):
            print(f"  {question}: {answer}")
    if collected.version is None:
        print("no reviewer has preferred one answer to the other yet: no data")
        return
    version = collected.version
    new = f"{collected.new} of {len(collected.rows)} answers new" if collected.new else "no new answer"
    print(f"{collected.name}: {new}, version {version.digest[:8]}, commit {version.revision[:8]}")


def _other(ours: VersionInfo) -> VersionInfo:
    """Return the champion; if `ours` is the champion, the previous one; if there is none, the newest version before."""
    from tasks.tracking import registry

    known = [registry.by_alias(ours.name, alias) for alias in (registry.CHAMPION, registry.PREVIOUS)]
    known += [version for version in registry.versions(ours.name) if version.version < ours.version]
    for version in known:
        if version is not None and version.version != ours.version:
            return version
    raise UserError(f"{ours.name} has no other version to compare version {ours.version} with")
