"""The command line: `rewardflow COMMAND`. Large packages are imported when a command needs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.environment import prepare_environment, state_folder
from flows.servers import MLFLOW_PORT, PREFECT_PORT
from models.errors import UserError

app = typer.Typer(
    name="rewardflow",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="A post-training factory: data, reward model, reinforcement learning, evaluation, promotion.",
)

_debug = False

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

ModelOption = Annotated[str, typer.Option("--model", help="Registered model; the only policy there is, if left out.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a key of the recipe.")
]
MlflowPort = Annotated[int, typer.Option("--mlflow-port", help="Port of the MLflow server on 127.0.0.1.")]
PrefectPort = Annotated[int, typer.Option("--prefect-port", help="Port of the Prefect server on 127.0.0.1.")]


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """A post-training factory: data, reward model, reinforcement learning, evaluation, promotion."""
    global _debug
    _debug = debug


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="Path of a recipe, or the name of one in recipes/.")],
    overrides: SetOption = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Run every step again, cached or not.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run every step in seconds, on a tiny policy, as NAME-smoke.")
    ] = False,
) -> None:
    """Run a recipe from data to promoted model.

    Example: `rewardflow run recipes/arithmetic.yaml --set schedule.rounds=20`
    """
    from models.recipe.load import load_recipe, require_files
    from models.recipe.smoke import smoke_overrides

    chosen = overrides or []
    if smoke:
        chosen = [*smoke_overrides(load_recipe(recipe, chosen)), *chosen]
    require_files(load_recipe(recipe, chosen))  # what is wrong is said before Prefect takes seconds to start
    from flows.outcome import closing_lines
    from flows.train import train

    outcome: Any = train(recipe, chosen, refresh)
    print(closing_lines(outcome, state_folder()))


@app.command()
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
    """Train several recipes over several seeds and compare them: interquartile means, probability of improvement.

    They must agree in data, evaluation and the policy to begin with. Each gets the rounds that come nearest to the
    budget; where a method samples nothing, completions are those of the data that it learns from.

    Example: `rewardflow compare rloo grpo remax --seeds 5 --budget 15000`
    """
    from models.recipe.comparison import contenders

    chosen = overrides or []
    contenders(recipes, chosen, seeds, metric, budget, smoke)  # what is wrong is said before Prefect takes seconds
    from flows.compare import compare as compared
    from flows.outcome import comparison_lines

    run, standings, costs = compared(recipes, chosen, seeds, metric, budget, smoke)
    print(comparison_lines(run, standings, costs, metric, state_folder()))


@app.command()
def methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/methods.md.")] = False,
) -> None:
    """List the recipes with the slots that they use and the papers that they come from.

    Example: `rewardflow methods`
    """
    from models.recipe.methods import as_markdown, as_text
    from models.recipe.methods import methods as found

    print(as_markdown(found()) if markdown else as_text(found()), end="" if markdown else "\n")


@app.command()
def runs(
    experiment: Annotated[str, typer.Argument(help="MLflow experiment: the recipe's name.")] = "arithmetic",
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, newest first.")] = 20,
) -> None:
    """List the newest runs of a recipe.

    Example: `rewardflow runs arithmetic --limit 5`
    """
    from flows.outcome import run_lines
    from tasks.tracking import store, summaries

    store.configure(state_folder())
    print(run_lines(summaries.recent_runs(experiment, limit)))


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, its name, or `latest`.")] = "latest",
    experiment: Annotated[
        str, typer.Option("--experiment", "-e", help="MLflow experiment: the recipe's name.")
    ] = "arithmetic",
) -> None:
    """Show a run: verdict, steps, data, and its address in the MLflow UI.

    Example: `rewardflow show latest`
    """
    from flows.outcome import print_run
    from tasks.tracking import store, summaries

    store.configure(state_folder())
    print_run(summaries.run_summary(experiment, run), state_folder())


@app.command()
def promote(version: Annotated[int, typer.Argument(help="Version to make champion.")], model: ModelOption = "") -> None:
    """Make a version the champion by hand; the champion before it becomes `previous`.

    Example: `rewardflow promote 3`
    """
    from tasks.tracking import aliases, store

    store.configure(state_folder())
    new = aliases.promote(_policy(model), version)
    print(f"champion of {new.name}: version {new.version}")


@app.command()
def rollback(model: ModelOption = "") -> None:
    """Make the previous champion champion again; twice swaps back.

    Example: `rewardflow rollback`
    """
    from tasks.tracking import aliases, store

    store.configure(state_folder())
    new = aliases.rollback(_policy(model))
    print(f"champion of {new.name}: version {new.version}")


@app.command()
def lineage(version: Annotated[int, typer.Argument(help="Version of the policy.")], model: ModelOption = "") -> None:
    """Print the chain from the raw data's hash to the alias.

    Example: `rewardflow lineage 1`
    """
    from tasks.tracking import lineage as chain
    from tasks.tracking import store

    store.configure(state_folder())
    print(chain.render(chain.lineage(_policy(model), version)))


@app.command()
def doctor(deep: Annotated[bool, typer.Option("--deep", help="Also import the large packages.")] = False) -> None:
    """Check this machine: versions, devices, disk, data, ports. Exit status 1 where something is wrong.

    Example: `rewardflow doctor`
    """
    from flows.doctor import diagnose, table

    findings = diagnose(deep=deep)
    print(table(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def ui(
    mlflow_port: MlflowPort = MLFLOW_PORT,
    prefect_port: PrefectPort = PREFECT_PORT,
    stop: Annotated[bool, typer.Option("--stop", help="End servers that an earlier command left.")] = False,
) -> None:
    """Start the MLflow and Prefect servers and print their addresses; Ctrl-C ends them.

    Example: `rewardflow ui --mlflow-port 5001`
    """
    from flows.servers import end_servers, serve

    if stop:
        print("\n".join(end_servers(state_folder())) or "no server was running")
        return
    serve(state_folder(), mlflow_port, prefect_port)


@app.command()
def schedule(mlflow_port: MlflowPort = MLFLOW_PORT, prefect_port: PrefectPort = PREFECT_PORT) -> None:
    """Serve the deployments of prefect.yaml on their schedules until Ctrl-C.

    Example: `rewardflow schedule`
    """
    from flows.schedule import serve_schedule

    serve_schedule(Path("prefect.yaml"), state_folder(), mlflow_port, prefect_port)


def _policy(model: str) -> str:
    """The registered model that is meant: the given one, or the only policy there is."""
    if model:
        return model
    from tasks.tracking import registry

    names = registry.policy_names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise UserError("no policy is registered yet; `rewardflow run RECIPE` trains one")
    raise UserError(f"which policy? name one with --model: {', '.join(names)}")


def main() -> None:
    """Entry point: a UserError becomes one line and exit status 1; with --debug everything shows its traceback."""
    prepare_environment()
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print("\ninterrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        raise
    except Exception as error:
        if _debug or "--debug" in sys.argv:
            raise
        line = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {' '.join(str(error).split())}"
        print(
            f"error: {line}" + ("" if isinstance(error, UserError) else "  (--debug shows the traceback)"),
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
