"""Reproduction of a registered version: it is trained again, in a separate folder and tracking store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefect import flow

from flows.runtime.environment import writable_state_folder
from flows.runtime.opening import FlowContext, closed_with, own_folder
from flows.runtime.training import train_policy
from models.learner.precision import Precision, fix_precision
from models.recipes.load import plain
from models.recipes.schema import Recipe
from tasks.compute.precision import precision_folder
from tasks.compute.shared_engine import shared_engine
from tasks.host.code_version import code_version
from tasks.tracking import runs, store, tags

APART = "reproductions"
"""Folder in the state folder for reproductions, which are deleted after the comparison unless they are kept."""


@dataclass(frozen=True)
class RetrainedVersion:
    """Results of training a version again."""

    folder: Path
    """Model folder of the policy."""
    metrics: Mapping[str, float]
    """Metrics of its evaluation."""


@contextmanager
def retrained(
    label: str, name: str, recipe: Recipe, precisions: Mapping[str, Precision], keep: bool
) -> Iterator[RetrainedVersion]:
    """Train and evaluate the recipe of a version again, without reusing earlier results; nothing is registered.

    Args:
        label: version that is trained again.
        name: name of the folder, the same each time: the remains of a killed run are deleted.
        recipe: its base must not be an address of the registry.
        precisions: shape of a model -> the precision of its training if the recipe leaves that open.
        keep: whether to keep the results at the end.
    """
    apart = writable_state_folder() / APART / name

    @flow(name="reproduce", flow_run_name="reproduce {version}")
    def again(version: str) -> RetrainedVersion:
        with own_folder(recipe.name):
            shutil.rmtree(apart, ignore_errors=True)
            for shape, precision in precisions.items():
                fix_precision(precision_folder(apart), shape, precision)
            with store.separate_store(apart):
                root = Path.cwd()
                code = code_version(root)
                facts = {tags.RECIPE: recipe.name, tags.GIT_COMMIT: code.name, tags.SEED: str(recipe.seed)}
                run = runs.open_flow_run(recipe.name, f"reproduce {version}", facts, plain(recipe))
                with closed_with(run), shared_engine(recipe.placement):
                    training = train_policy(FlowContext(recipe, root, apart, run, code, {}, ""), refresh=True)
                    measured = training.evaluated_candidate().metrics if training.tuned is not None else {}
                return RetrainedVersion(Path(training.made.folder) / "policy", dict(measured))

    try:
        yield again(label)
    finally:
        if not keep:
            shutil.rmtree(apart, ignore_errors=True)
