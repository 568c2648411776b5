"""The gate's judgement of a champion that a person set by hand; it is shown, and changes no alias."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from tasks.gate.judgement import JudgementSections, OnGate, decide, judged, numbers
from tasks.pages.registered_page import annotate
from tasks.runner.step import StepContext, StepOutput, run_step
from tasks.runner.unexpected import RETRY_OPTIONS
from tasks.steps.promote import policy_name
from tasks.tracking import aliases, by_hand, registry, runs, tags
from tasks.tracking.by_hand import PendingChampion
from tasks.tracking.verdict_record import HandJudgement
from tasks.tracking.verdict_text import hand_text


@dataclass(frozen=True)
class ComparedEvaluations:
    """The evaluations by which the gate judges a champion that a person set by hand."""

    champion: OnGate
    """Evaluations of the version that was set by hand."""
    before: OnGate
    """Evaluations of the champion before it."""
    anchor: OnGate | str
    """Evaluations of the anchor, or why it is not a separate version."""
    weights: str
    """Digests of both policies; if the last look compared the same two, it is continued and not counted again."""


@task(name="judge_champion", task_run_name="{context.name}", cache_policy=NO_CACHE, **RETRY_OPTIONS)
def judge_champion(
    context: StepContext[JudgementSections], waiting: PendingChampion, measured: ComparedEvaluations | str
) -> HandJudgement:
    """Compare a champion that was set by hand with the one before, as if it were a candidate. No alias is changed.

    Args:
        waiting: the version, and the champion before.
        measured: the evaluations, or why there are none, in one sentence.
    """
    recipe, parent_run = context.recipe, context.run
    name = policy_name(recipe)
    if isinstance(measured, str):
        judgement = HandJudgement(version=waiting.version, champion=waiting.against, problem=measured)
        return _record(name, waiting, judgement, parent_run)
    verdict = judged(name, recipe, measured.champion, measured.before, measured.anchor, measured.weights)
    unpinned = registry.facts_of(registry.version_info(name, waiting.version)).get(tags.UNPINNED, "")
    record = decide(verdict, recipe.gate, waiting.against, unpinned="" if recipe.promote_unpinned else unpinned)
    judgement = HandJudgement(version=waiting.version, champion=waiting.against, verdict=record)

    def work(folder: Path, run_id: str) -> StepOutput:
        _record(name, waiting, judgement, parent_run)
        headline = f"{record.decision}, had it been a candidate: version {waiting.version}"
        return StepOutput(
            measured.champion.gate.digest, headline, numbers(verdict), {"version": f"{name}/{waiting.version}"}
        )

    run_step(context, work)
    return judgement


def _record(name: str, waiting: PendingChampion, judgement: HandJudgement, parent_run: str) -> HandJudgement:
    """Record the judgement on the version and on the run, and only then delete the note that the version waits."""
    text = hand_text(judgement)
    get_run_logger().warning(f"{name}: the champion was set by hand; {text}")
    runs.set_tags(parent_run, {tags.CHAMPION_JUDGED: text})
    there = [version for version in registry.versions(name) if version.version == waiting.version]
    for version in there:  # none if it was deleted in the meantime
        promoted_by = f"{aliases.SET_BY_HAND}; {text}"
        annotate(version, {tags.BY_HAND: judgement.model_dump_json(), tags.PROMOTED_BY: promoted_by})
    by_hand.settled(name, waiting)
    return judgement
