"""A comparison of two models with its stores: what the command `judge` and `rewardflow.judge` call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from flows.runtime.command_options import meant_policy
from flows.runtime.environment import state_folder, writable_state_folder
from models.base.errors import UserError, listed
from models.evaluation.gate.gate import GateSettings
from tasks.judging.compare import Comparison, compare
from tasks.judging.verdict import Judgement

OWN_SETTINGS = {
    "metric": "--metric names it",
    "capabilities": "--guard METRIC=MARGIN names them",
    "problems": "--problems limits them",
    "samples": "the sources decide it",
    "held_out": "each set is judged by a command of its own",
    "fluency_margin": "it needs the policy from which a training started",
    "copied": "it needs the rows that a training read",
    "hallucination": "it needs the prompts",
    "divergence_margin": "it needs a reward model",
    "reward_gap_margin": "it needs a reward model",
}
"""Settings of a recipe's gate that `judge` does not take, with the reason."""


def run_comparison(wanted: Comparison, model: str = "", *, mlflow: bool = False) -> tuple[Judgement, str]:
    """Open the stores that a comparison needs, and compare.

    Args:
        wanted: the comparison.
        model: registered model that a number or an alias alone means; empty: the only registered policy.
        mlflow: record the result as an MLflow run.

    Returns:
        The judgement, and the id of the run; empty without one.

    Raises:
        UserError: a source, the problems or a setting is wrong. No look is spent then.
    """
    if any(source.draws_here for source in wanted.sources):
        from flows.runtime.console import quiet_transformers

        quiet_transformers()
    if wanted.registry or mlflow:
        from tasks.tracking import store

        store.configure(writable_state_folder())
    elif any(source.kind == "version" for source in wanted.sources):
        from tasks.tracking import store

        store.open_for_reading(state_folder())
    judgement = compare(wanted, lambda: meant_policy(model))
    if not mlflow:
        return judgement, ""
    from tasks.judging.record import record

    return judgement, record(judgement)


def gate_settings(values: Mapping[str, Any]) -> GateSettings:
    """Return the gate's settings with these values, which `--set` gives.

    Raises:
        UserError: a key is unknown or not for a comparison, or a value is wrong.
    """
    known = [field.name for field in fields(GateSettings) if field.name not in OWN_SETTINGS]
    for key in values:
        if key in OWN_SETTINGS:
            raise UserError(f"--set {key}: not a setting of judge; {OWN_SETTINGS[key]}")
        if key not in known:
            raise UserError(f"--set {key}: unknown; there are {listed(known, 20)}")
    try:
        return TypeAdapter(GateSettings).validate_python({"capabilities": (), **values})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
