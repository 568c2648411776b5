"""The command `rewardflow review collect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.runtime.command_options import ModelOption, meant_policy
from flows.runtime.environment import writable_state_folder

if TYPE_CHECKING:
    pass


def collect(
    name: Annotated[str, typer.Option("--name", help="Name of the data set. Default: DATA-reviewed.")] = "",
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
    for what in collected.reviews:
        print(what.title)
        for question, answer in review_lines(what):
            print(f"  {question}: {answer}")
    if collected.version is None:
        print("no reviewer has preferred one answer to the other yet: no data")
        return
    version = collected.version
    new = f"{collected.new} of {len(collected.rows)} answers new" if collected.new else "no new answer"
    print(f"{collected.name}: {new}, version {version.digest[:8]}, commit {version.revision[:8]}")
