"""The flow that mixes the weights of two policies in several shares, and measures accuracy and diversity of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from flows.runtime.evaluation_inputs import prepare_evaluation
from flows.runtime.opening import open_flow
from flows.runtime.parameters import Overrides
from flows.runtime.steps import call_step
from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.front import Mixture, mixture_rows
from models.evaluation.metrics import prompt_values
from models.evaluation.table import read_records
from models.policies.merge import MergeSettings
from tasks.compute.shared_engine import shared_engine
from tasks.registered.policy import named_policy, policy_of_step
from tasks.runner.step import StepResult
from tasks.steps.evaluate import ShownSections, evaluate_policy
from tasks.steps.merge_policies import MergeSections, merge_policies
from tasks.tracking import records


@flow(name="interpolate", flow_run_name="interpolate {first} and {other}")
def interpolate(
    first: str, other: str, shares: Sequence[float], recipe: str, overrides: Overrides = None
) -> tuple[str, list[Mixture]]:
    """Evaluate mixtures of two policies. Returns the flow's MLflow run and the mixtures, [shares].

    Each mixture is a step with a result of its own, so that an interrupted command continues with the missing ones.

    Args:
        first: NAME/VERSION of a registered policy, or a model folder.
        other: the same for the second policy.
        shares: weights of the second policy, in [0, 1].
        recipe: path or name of the recipe on whose problems they are evaluated.
        overrides: `key.path=value` each.

    Raises:
        UserError: a policy or the recipe does not exist, or the policies cannot be merged.
    """
    with open_flow("evaluate", recipe, overrides or []) as opened:
        parents = [named_policy(named) for named in (first, other)]
        opened, (_, validated, rewarded) = prepare_evaluation(opened, *parents[0])
        sections, mixtures = ShownSections(opened.recipe), []
        with shared_engine(opened.recipe.placement):
            for share in shares:
                settings = MergeSettings(method="linear", weights=(1.0 - share, share))
                made = call_step(
                    opened,
                    merge_policies,
                    MergeSections(opened.recipe),
                    [files for files, _ in parents],
                    None,
                    settings,
                    name=f"merge {share:g}",
                )
                measured = call_step(
                    opened,
                    evaluate_policy,
                    sections,
                    policy_of_step(made),
                    validated,
                    rewarded,
                    name=f"evaluate {share:g}",
                )
                mixtures.append(_mixture(share, measured))
        heading, *rows = mixture_rows(mixtures)
        lines = [f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *rows)]
        records.describe(opened.run_id, f"## Mixtures of {first} and {other}\n\n" + "\n".join(lines) + "\n")
        return opened.run_id, mixtures


def _mixture(share: float, measured: StepResult) -> Mixture:
    known = read_records(Path(measured.folder) / "records.parquet")
    accuracy, diversity = (
        bootstrap_mean(prompt_values(known, name)) for name in ("sampled_accuracy", "distinct_share")
    )
    return Mixture(share, accuracy, diversity)
