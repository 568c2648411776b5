"""A champion that a person set by hand is put through the gate: said on its page and on the run, and left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from models.evaluation.checks import Check
from tasks.description import Decision, cell, gate_table
from tasks.judgement import JudgementSections, OnGate, decide, judged, numbers
from tasks.step import Made, StepContext, run_step
from tasks.steps.promote import policy_name
from tasks.tracking import aliases, by_hand, registry, runs, tags
from tasks.tracking.by_hand import Waiting
from tasks.unexpected import tried_again
from tasks.version_page import page_of_champion_by_hand

LONGEST_PAGE = 5000
"""Characters of a version's description that a registry on PostgreSQL keeps."""

_WOULD: dict[Decision, str] = {
    "promoted": "the gate would have promoted it",
    "kept": "the gate would not have promoted it",
    "refused": "the gate would have refused it",
}


@dataclass(frozen=True)
class Measured:
    """What the gate holds against one another."""

    champion: OnGate
    """The version that was set by hand."""
    before: OnGate
    """The champion before."""
    anchor: OnGate | str
    """The anchor, or why there is no other."""
    weights: str
    """Digests of both policies: a look at the same two goes on where it was cut off."""


@dataclass(frozen=True)
class OnChampion:
    """What became of it, for the run's page."""

    said: str
    """One sentence."""
    checks: Sequence[Check] = ()
    notes: Sequence[str] = ()

    @property
    def page(self) -> str:
        """Markdown."""
        return "\n\n".join(filter(None, [cell(self.said), *map(cell, self.notes), gate_table(self.checks)]))


@task(name="judge_champion", task_run_name="{context.name}", cache_policy=NO_CACHE, **tried_again)
def judge_champion(context: StepContext[JudgementSections], waiting: Waiting, measured: Measured | str) -> OnChampion:
    """Hold a champion that was set by hand against the one before, as if it were a candidate. No alias is touched.

    Args:
        waiting: which version, and the champion before.
        measured: the evaluations, or why there are none, in one sentence.
    """
    recipe, parent_run = context.recipe, context.run
    name = policy_name(recipe)
    if isinstance(measured, str):
        return _record(name, waiting, OnChampion(f"version {waiting.version}: {measured}"), {}, parent_run)
    against = f"version {waiting.against}, the champion before"
    verdict = judged(name, recipe, measured.champion, measured.before, measured.anchor, measured.weights)
    unpinned = registry.facts_of(registry.version_info(name, waiting.version)).get(tags.UNPINNED, "")
    decision, reason = decide(verdict, False, against, unpinned="" if recipe.promote_unpinned else unpinned)
    verdict_of_hand = OnChampion(
        f"version {waiting.version}: {_WOULD[decision]}: {reason}", verdict.checks, verdict.lines
    )

    def work(folder: Path, run_id: str) -> Made:
        checks = {
            key.replace(tags.GATE, tags.BY_HAND_GATE): value
            for check in verdict.checks
            for key, value in tags.gate_tag(check.name, check.state, check.detail).items()
        }
        _record(name, waiting, verdict_of_hand, checks, parent_run)
        headline = f"{decision}, had it been a candidate: version {waiting.version}"
        return Made(measured.champion.gate.digest, headline, numbers(verdict), {"version": f"{name}/{waiting.version}"})

    run_step(context, work)
    return verdict_of_hand


def _record(name: str, waiting: Waiting, judged: OnChampion, checks: dict[str, str], parent_run: str) -> OnChampion:
    """Write it on the version and on the run; only then does nothing wait any more."""
    get_run_logger().warning(f"{name}: the champion was set by hand; {judged.said}")
    runs.set_tags(parent_run, {tags.CHAMPION_JUDGED: judged.said})
    there = [version for version in registry.versions(name) if version.version == waiting.version]
    for version in there:  # none where it was deleted meanwhile
        page = page_of_champion_by_hand(
            judged.said, judged.checks, judged.notes, f"version {waiting.against}", version.description, LONGEST_PAGE
        )
        stated = {tags.BY_HAND: judged.said, tags.PROMOTED_BY: f"{aliases.SET_BY_HAND}; {judged.said}"}
        registry.annotate(name, version.version, stated | checks, page)
    by_hand.settled(name, waiting)
    return judged
