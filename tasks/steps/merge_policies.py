"""The merge of several policies into a new one, which is evaluated and judged like a trained policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import get_run_logger, task

from models.base.sections import Sections
from models.policies.merge import MergeSettings
from models.policies.merged_folder import write_merged
from tasks.registered.policy import PolicyFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.tracking import registry


class MergeSections(Sections):
    """The sections of the recipe that a merge reads: none."""


@task(name="merge", **cached_by_key)
def merge_policies(
    context: StepContext[MergeSections],
    parents: Sequence[PolicyFiles],
    base: PolicyFiles | None,
    settings: MergeSettings,
) -> StepResult:
    """Merge policies; write the result to `policy/` of the step's folder, and log it with the parents as inputs.

    Args:
        context: the step's.
        parents: the policies, in the order of the weights.
        base: the model that they were trained from, for methods that need it.
        settings: method and numbers.
    """

    def work(folder: Path, run_id: str) -> StepOutput:
        registry.log_model_inputs(run_id, [files.model_id for files in (*parents, *([base] if base else []))])
        origin = base.folder if base is not None else None
        digest = write_merged([files.folder for files in parents], origin, settings, folder / "policy")
        model_id = registry.log_model(run_id, folder / "policy", "policy", "text-generation")
        headline = f"{len(parents)} policies by {settings}"
        get_run_logger().info(f"merge: {headline}")
        return StepOutput(digest, headline, {}, {"model_id": model_id})

    return run_step(context, work)
