"""Commands for training: one recipe, or several that are compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.options import ModelOption, SetOption, meant_policy
from flows.runtime.environment import state_folder, writable_state_folder
from models.base.disk import require_space
from models.base.errors import UserError
from tasks.runner import interrupt

NOTHING_LEARNED = 3
"""Exit status of a run or a comparison that finished, but in which a policy collapsed or did not change."""

NOT_HERE = 2
"""Exit status of a reproduction that cannot be run here; 1 means that the result differs."""

DOES_NOT_FIT = 3
"""Exit status of a plan for a device with too little memory."""


def run(
    recipe: Annotated[str, typer.Argument(help="Path of a recipe, or the name of one in recipes/.")],
    overrides: SetOption = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Run every step except data again; judged weights are not judged again."),
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run every step in seconds, on a tiny policy, as NAME-smoke.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Refuse if data, code or recipe changed since it was cut off; without this, it starts again.",
        ),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", help="Ray cluster to place engines on; this machine, if left out.", metavar="ADDRESS"
        ),
    ] = None,
) -> None:
    """Run a recipe, from the data to the promoted model.

    Example: `rewardflow run recipes/arithmetic.yaml --set schedule.rounds=20`
    """
    from models.recipes.find import find_recipe

    find_recipe(recipe)  # reports a misspelt name before the parts are imported, which takes seconds
    from models.recipes.files import require_files
    from models.recipes.load import load_recipe
    from models.recipes.smoke import made_small

    chosen = overrides or []
    if smoke:
        chosen = made_small(recipe, chosen)
    checked = load_recipe(recipe, chosen)  # reports errors before Prefect starts, which takes seconds
    require_files(checked)
    checked.placement.check(cluster)
    require_space(state_folder())  # before the folder is made: a refused run leaves no files
    writable_state_folder()
    from flows.runtime import console
    from flows.servers import temporary_server

    server_answers = temporary_server.start(state_folder())
    from flows.runtime.outcome import closing_lines
    from flows.train import train

    console.quiet(told_at_the_end=True)
    server_answers()
    outcome: Any = train(recipe, chosen, refresh, cluster, resume)
    interrupt.raise_again()
    print(closing_lines(outcome, state_folder()))
    if outcome.collapsed:
        raise typer.Exit(NOTHING_LEARNED)


def compare(
    recipes: Annotated[list[str], typer.Argument(help="Recipes; the first is the one to beat.")],
    seeds: Annotated[int, typer.Option("--seeds", help="Trainings of each recipe, 2 or more.")] = 5,
    metric: Annotated[str, typer.Option("--metric", help="Held-out metric.")] = "sampled_accuracy",
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            help="Completions of each training; the smallest of the recipes' own (rounds x prompts x completions of a "
            "prompt) if left out.",
        ),
    ] = None,
    overrides: SetOption = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="In seconds, on tiny policies, as comparison-smoke.")] = False,
) -> None:
    """Train several recipes with several seeds and compare them: interquartile means, probability of improvement.

    The recipes must have the same data, evaluation and initial policy. Each recipe gets the number of rounds that comes
    nearest to the budget. For a method that samples nothing, the completions are those of its training data. A training
    whose policy collapsed or did not change is listed, and the exit status is then 3.

    Example: `rewardflow compare rloo grpo remax --seeds 5 --budget 15000`
    """
    from models.recipes.find import find_recipe

    for recipe in recipes:
        find_recipe(recipe)  # as above
    from models.recipes.comparison import contenders

    chosen = overrides or []
    contenders(recipes, chosen, seeds, metric, budget, smoke)  # reports errors before Prefect starts
    require_space(state_folder())
    writable_state_folder()
    from flows.runtime import console
    from flows.servers import temporary_server

    server_answers = temporary_server.start(state_folder())
    from flows.compare import compare as compared
    from flows.runtime.outcome import comparison_lines

    console.quiet(told_at_the_end=True)
    server_answers()
    run, standings, costs, lost = compared(recipes, chosen, seeds, metric, budget, smoke)
    interrupt.raise_again()
    print(comparison_lines(run, standings, costs, lost, metric, state_folder()))
    if lost:
        raise typer.Exit(NOTHING_LEARNED)


def plan(
    recipe: Annotated[str, typer.Argument(help="Path of a recipe, or the name of one in recipes/.")],
    overrides: SetOption = None,
    memory: Annotated[
        float | None,
        typer.Option("--memory", help="Of the GPU that is planned for, GiB, as 80; this machine's, if left out."),
    ] = None,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Tokens of a prompt: the data are not read.")] = 256,
) -> None:
    """Print, before anything starts, parameters, tokens per round, memory by part, and whether it fits the device.

    The figures come from the code that will run, from shapes alone: no weights are loaded. Exit status 3 if it does not
    fit.

    Example: `rewardflow plan real/qwen3_06b_gsm8k_grpo --memory 80`
    """
    from models.recipes.find import find_recipe

    find_recipe(recipe)
    from models.policies.folder import is_registered
    from models.recipes.load import load_recipe
    from models.recipes.plan.report import planned

    loaded, whence = load_recipe(recipe, overrides or []), ""
    if is_registered(loaded.policy.base or ""):
        from tasks.registered.base import current_base
        from tasks.tracking import store

        store.open_for_reading(state_folder())
        loaded, base = current_base(loaded)
        whence = str(base)
    page, fits = planned(loaded, prompt, memory, whence)
    print(page)
    if not fits:
        raise typer.Exit(DOES_NOT_FIT)


def reproduce(
    version: Annotated[str, typer.Argument(help="Number of a version, NAME/VERSION, or an alias such as champion.")],
    model: ModelOption = "",
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="By how much a metric may differ; weights must not at all.")
    ] = 1e-6,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave what was made, in `reproductions` of the state folder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON.")] = False,
    noted: Annotated[
        bool, typer.Option("--note/--no-note", help="Write on the version whether it came out the same.")
    ] = True,
) -> None:
    """Train a version again from its data and compare the weights bit for bit.

    The training uses the recorded commit, data, recipe and seed. Nothing is taken from earlier steps, nothing is
    registered, and no alias moves. The result is written on the version's page. Exit status 0: identical; 1: something
    differs, and the output lists it; 2: the version cannot be trained again here.

    Example: `git checkout COMMIT`, then `rewardflow reproduce 3`
    """
    from flows.reproduction import as_json as whole
    from flows.reproduction import reproduction_lines, wanted_version, warning
    from flows.runtime import console
    from flows.servers import temporary_server
    from tasks.registered.reproduction import note, reproduction
    from tasks.tracking import store

    try:
        require_space(state_folder())
        store.open_for_reading(state_folder())
        wanted = wanted_version(version, lambda: meant_policy(model), Path.cwd())
        if line := warning(wanted.around):
            print(line, file=sys.stderr)
        server_answers = temporary_server.start(state_folder())
        from flows.reproduce import made_again

        console.quiet(told_at_the_end=True)
        server_answers()
        with made_again(wanted.said.label, wanted.said.run[:12], wanted.to_train, wanted.precisions, keep) as made:
            interrupt.raise_again()
            said = reproduction(
                wanted.said,
                wanted.recipe,
                wanted.data,
                wanted.original,
                made.folder,
                made.metrics,
                wanted.around,
                tolerance,
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(NOT_HERE) from None
    print(whole(said) if as_json else reproduction_lines(said))
    if noted:
        try:
            note(wanted.said, said)
        except UserError as error:
            print(f"not noted on the version: {error}", file=sys.stderr)
    if keep:
        print(f"made: {made.folder}", file=sys.stderr)
    if not said.identical:
        raise typer.Exit(1)


COMMANDS = (run, compare, plan, reproduce)
