"""Start and end of every flow: lock the state folder, check the recipe, open the MLflow run and close it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.runtime import collection, console, prefect_run
from flows.runtime.environment import state_folder, writable_state_folder
from flows.runtime.notifications import notify_killed, notify_when_stopped
from flows.runtime.turn import only_run, patience
from flows.schedule.schedule import create_gpu_limit
from flows.schedule.silence import recorded_run
from flows.servers.servers import end_orphans, page_address
from models.base.disk import needs_space
from models.base.errors import UserError
from models.policies.threads import set_threads
from models.recipes.files import require_files
from models.recipes.find import find_recipe
from models.recipes.load import digest, load_recipe, plain
from models.recipes.schema import Recipe
from tasks.host.code_version import CodeVersion, running_version
from tasks.host.machine import log_machine
from tasks.pages import run_names
from tasks.registered.base import Base, resolve_base, source_line, until_done
from tasks.registered.base import described as as_recorded
from tasks.registered.recorded_recipe import log_recipe_settings
from tasks.runner import interrupt
from tasks.tracking import aliases, records, registry, runs, store, summaries, tags


@dataclass(frozen=True)
class FlowContext:
    """A flow that has started."""

    recipe: Recipe
    root: Path
    """The repository, which is the working directory."""
    home: Path
    """The state folder."""
    run_id: str
    """Id of the flow's MLflow run."""
    code: CodeVersion
    facts: dict[str, str]
    """Recipe, commit, seed and others: one line each on the page for reviewers."""
    page: str
    """Address of the run in the MLflow UI."""
    base: Base | None = None
    """Registered version that the policy begins with, if it does."""


@contextmanager
def open_flow(
    kind: str, recipe: str, overrides: Sequence[str], stage: Callable[[], registry.VersionInfo] | None = None
) -> Iterator[FlowContext]:
    """Check the recipe, lock the state folder, open the MLflow run, and close it with the status of the flow.

    Args:
        kind: kind of the flow.
        recipe: path or name of a recipe.
        overrides: `key.path=value` each.
        stage: see `tasks.registered.base.resolve_base`.

    Raises:
        UserError: the recipe is wrong, a file that it names is missing, or other runs use the folder for too long.
    """
    with ExitStack() as stack:
        stoppable = stack.enter_context(notify_when_stopped(state_folder(), f"{kind} {recipe}"))
        prefect_run.require_plain_address()
        stack.enter_context(recorded_run(state_folder(), prefect_run.deployment()))
        loaded_recipe = load_recipe(recipe, overrides)
        stoppable.what = f"{kind} {loaded_recipe.name}"
        require_files(loaded_recipe)
        home = stack.enter_context(own_folder(loaded_recipe.name))
        resolved, base = resolve_base(kind, loaded_recipe, home, stage)
        if base is not None:
            require_files(resolved)
        set_threads(resolved.policy)
        code = running_version(Path.cwd(), find_recipe(recipe), given=[source.file for source in loaded_recipe.sources])
        settings = plain(as_recorded(resolved, base))
        recipe_tags = {
            tags.RECIPE: loaded_recipe.name,
            tags.RECIPE_SHA256: digest(settings),
            tags.GIT_COMMIT: code.name,
            tags.SEED: str(loaded_recipe.seed),
        }
        if code.release:
            recipe_tags[tags.RELEASE] = code.release
        if base is not None:
            recipe_tags[tags.BASE_VERSION] = base.name
        base_source = source_line(resolved)
        if base_source:
            recipe_tags[tags.BASE_SOURCE] = base_source
        if loaded_recipe.placement.placed:
            recipe_tags[tags.PLACEMENT] = str(loaded_recipe.placement)
        prefect = prefect_run.address()
        if prefect:
            recipe_tags[tags.PREFECT_RUN] = prefect
        run_id = runs.open_flow_run(loaded_recipe.name, f"{kind} {loaded_recipe.name}", recipe_tags, settings)
        page = page_address(home, "mlflow") + summaries.page_of_run(run_id)
        prefect_run.link_to(page)
        log_recipe(run_id, find_recipe(recipe), overrides, loaded_recipe)
        log_recipe_settings(run_id, settings, Path.cwd(), find_recipe(recipe), overrides)
        log_machine(run_id, Path.cwd())
        facts = {
            "recipe": f"{find_recipe(recipe)} {' '.join(overrides)}".strip(),
            "commit": code.name,
            "seed": str(loaded_recipe.seed),
        }
        if code.release:
            facts["release"] = code.release
        if base is not None:
            facts["trained on from"] = str(base)
            if base.version.logged:
                registry.log_model_inputs(run_id, [base.version.model_id])
        if base_source:
            facts["base model"] = base_source
        if prefect:
            facts["Prefect run"] = prefect
        stoppable.run, stoppable.link = run_id, page
        with closed_with(run_id), until_done(kind, loaded_recipe, home):
            yield FlowContext(resolved, Path.cwd(), home, run_id, code, facts, page, base)
        prefect_run.describe(*summaries.name_and_note(run_id), page)


def log_recipe(run_id: str, file: Path, overrides: Sequence[str], recipe: Recipe) -> None:
    """Log a recipe's file to a run, with the overrides and the user's own source files that its parts read."""
    records.log_artifact(run_id, file, "recipe")
    for source in recipe.sources:
        records.log_text(run_id, f"recipe/{source.file.stem}_{source.sha256[:12]}{source.file.suffix}", source.text)
    if overrides:
        records.log_text(run_id, "recipe/overrides.txt", "\n".join(overrides) + "\n")


@contextmanager
def own_folder(experiment: str) -> Iterator[Path]:
    """Lock the state folder for this run, and set up tracking and the GPU's concurrency limit.

    Raises:
        UserError: other runs use the folder for longer than this one waits.
    """
    prefect_run.require_plain_address()
    home = writable_state_folder()
    interrupt.keep()  # Prefect installs its own SIGTERM handler when a flow starts
    console.quiet()
    with only_run(home, patience(), _log_line):
        end_orphans(home)
        store.configure(home)
        for run in runs.sweep_dead_runs(experiment):
            if run.of_flow:
                notify_killed(home, run, page_address(home, "mlflow") + summaries.page_of_run(run.run_id))
        create_gpu_limit()
        collection.begin()
        yield home


def _log_line(line: str) -> None:
    from prefect import get_run_logger

    get_run_logger().info(line)


def notice_champion(run: str, model: str, earlier: str = "") -> str:
    """Record and log a champion or anchor alias that was set or deleted outside Rewardflow.

    Returns:
        A description of the change, after the earlier one of this run (`earlier`); empty if nothing changed.
    """
    from prefect import get_run_logger

    change = aliases.record_outside_changes(model)
    if not change:
        return earlier
    get_run_logger().warning(f"{model}: {change}")
    description = "; ".join(filter(None, [earlier, change]))
    runs.set_tags(run, {tags.CHAMPION_NOTICED: description})
    return description


@contextmanager
def closed_with(run_id: str) -> Iterator[None]:
    """Close a flow's MLflow run with the status in which the block ends."""
    try:
        with needs_space(store.current().home):
            yield
    except BaseException as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        with suppress(UserError):  # an unreachable server must not hide the error that stopped the run
            status = runs.status_after(error)
            records.describe(run_id, f"## ✘ Stopped\n\n{reason}\n")
            runs.rename(run_id, run_names.stopped(reason, killed=status == "KILLED"))
            runs.close_run(run_id, status)
        raise
    runs.close_run(run_id)
