"""The command `rewardflow review queue`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.command_options import ModelOption, meant_policy
from flows.runtime.environment import writable_state_folder
from models.base.errors import UserError

if TYPE_CHECKING:
    from tasks.tracking.registry import VersionInfo


def queue(
    candidate: Annotated[int | None, typer.Argument(help="Version. Default: the newest.")] = None,
    against: Annotated[
        int | None,
        typer.Option("--against", help="Version to compare with. Default: the champion, or the version before."),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=1, max=1000, help="Maximum number of pairs of answers.")] = 32,
    reviewers: Annotated[
        list[str] | None,
        typer.Option(
            "--reviewer",
            metavar="LOGIN",
            help="Reviewer, who gets a queue of their own. Repeatable. Default: one queue for everybody.",
        ),
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
    for request in ask(ours, theirs, lambda: sampled_pairs(ours, theirs, pairs, Path.cwd()), reviewers or []):
        review = request.review
        state = f"{len(review.pairs)} pairs" + ("" if request.new else ", there already")
        print(f"{review.title}, {review.reviewer or 'anybody'}: {state}")
        print(f"  {page_address(home, 'mlflow')}{request.page}")


def _other(ours: VersionInfo) -> VersionInfo:
    """Return the champion; if `ours` is the champion, the previous one; if there is none, the newest version before."""
    from tasks.tracking import registry

    known = [registry.by_alias(ours.name, alias) for alias in (registry.CHAMPION, registry.PREVIOUS)]
    known += [version for version in registry.versions(ours.name) if version.version < ours.version]
    for version in known:
        if version is not None and version.version != ours.version:
            return version
    raise UserError(f"{ours.name} has no other version to compare version {ours.version} with")
