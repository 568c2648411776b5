"""Step 7: registration of the trained policy, the gate's decision on it, and its promotion. Never cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from models.recipes.schema import Recipe
from tasks.gate.approval import judged_against
from tasks.gate.judgement import JudgementSections, OnGate, decide, grounds_of, is_lifted, judged, numbers
from tasks.pages.description import cell
from tasks.pages.registered_page import annotate
from tasks.pages.version_page import policy_page
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.runner.unexpected import RETRY_OPTIONS
from tasks.steps.fine_tune import why_not_learned
from tasks.tracking import aliases, audit, lock, registry, runs, summaries, tags
from tasks.tracking.verdict_record import Decision, VerdictRecord, decided, read_verdict, store_decision
from tasks.tracking.verdict_text import baseline_text, improvement_text, reason_text, verdict_text


@dataclass(frozen=True)
class Promotion:
    """Outcome of the promotion step for a trained policy."""

    result: StepResult
    version: int
    verdict: VerdictRecord
    """Verdict of this run, or of an earlier one if the weights were judged before."""
    is_champion: bool
    """Whether the version is now the champion."""

    @property
    def reused(self) -> bool:
        """Whether the weights were judged in an earlier run."""
        return self.result.reused

    @property
    def decision(self) -> Decision:
        """The gate's decision, or a person's if one ruled on the candidate."""
        return self.verdict.decision

    @property
    def reason(self) -> str:
        """The reason of the decision in one sentence."""
        return reason_text(self.verdict)


class PromotionSections(JudgementSections):
    """The sections of the recipe that a promotion reads."""

    approval: bool


@dataclass(frozen=True)
class Candidate:
    """The trained policy and the evaluations by which the gate compares it with the champion or the base."""

    trained: StepResult
    rewarded: StepResult | None
    gate: Mapping[str, OnGate]
    """Role -> evaluations for the verdict: candidate, champion (for the first version, base), and anchor if it is
    another version."""
    shown: StepResult
    """Evaluation of the trained policy on the validation split, which the version's page names."""
    judged_against: registry.VersionInfo | None
    """The champion in the registry, None for the first version ever."""
    no_anchor: str
    """Why the anchor is not a separate version; used in that case."""
    unpinned: str = ""
    """Why no commit contains code and data of this run; "" if one does."""


@task(
    name="promote",
    task_run_name="promote {context.recipe.name}",
    cache_policy=NO_CACHE,
    **RETRY_OPTIONS,
)
def promote(context: StepContext[PromotionSections], candidate: Candidate) -> Promotion:
    """Register the trained policy as candidate, let the gate decide on it, and make it champion if it passes.

    If the same weights were judged before and that verdict still holds, it is returned and no look is spent.
    """
    recipe, parent_run = context.recipe, context.run
    trained, rewarded, gate, shown = candidate.trained, candidate.rewarded, candidate.gate, candidate.shown
    before, unpinned = candidate.judged_against, candidate.unpinned
    name = policy_name(recipe)
    known = _registered(name, trained.digest, before)
    if known is not None and not unpinned and registry.facts_of(known).get(tags.UNPINNED):
        # The same weights, now with code and data that a commit contains.
        origin = _origin(trained, rewarded, shown, parent_run)
        registry.annotate(name, known.version, origin | {tags.UNPINNED: ""})
    held_back = "" if recipe.promote_unpinned else unpinned
    grounds = grounds_of(recipe, gate["candidate"])
    if known is not None and _verdict_stands(known, before, grounds, recipe.approval, held_back):
        return _judged_before(context, name, known)
    champion = before.version if before is not None and "champion" in gate else None
    baseline = gate["base"] if champion is None else gate["champion"]
    anchor = gate.get("anchor", candidate.no_anchor)
    verdict = judged(name, recipe, gate["candidate"], baseline, anchor, trained.digest)
    record = decide(
        verdict,
        recipe.gate,
        champion,
        grounds=grounds,
        approval=recipe.approval,
        failed_training=why_not_learned(trained),
        unpinned=held_back,
    )
    versions: list[int] = []
    text = verdict_text(record)

    def work(folder: Path, run_id: str) -> StepOutput:
        version = (
            known.version
            if known is not None
            else registry.register(name, trained.links["model_id"], _origin(trained, rewarded, shown, parent_run))
        )
        versions.append(version)
        info = aliases.set_candidate(name, version)
        compared = {
            tags.COMPARED_WITH: baseline_text(champion),
            tags.JUDGED_AGAINST: "" if before is None else str(before.version),
            tags.IMPROVEMENT: improvement_text(record),
            tags.VERDICT_RECORD: record.model_dump_json(),
        }
        annotate(info, compared, origin=_shown_origin(recipe, trained, rewarded, shown, parent_run))
        registry.describe_model(name, policy_page(recipe.name, name))
        if record.decision == "promoted":
            aliases.promote(name, version, why="gate", by="gate", verdict=text, judged_against=before)
        store_decision(info, record.decision)
        if record.decision != "promoted":
            with lock.registry_lock(name) as lease:
                audit.append(name, lease, "judged", version, by="gate", why=text)
        get_run_logger().info(f"{name} version {version}: {record.decision}; {reason_text(record)}")
        headline = f"{record.decision}, version {version}"
        return StepOutput(trained.digest, headline, numbers(verdict), {"version": f"{name}/{version}"})

    result = run_step(context, work)
    return Promotion(result, versions[0], record, record.decision == "promoted")


def policy_name(recipe: Recipe | JudgementSections) -> str:
    """Return the registered name of the recipe's policies."""
    return f"{recipe.name}-policy"


def _registered(name: str, digest: str, champion: registry.VersionInfo | None) -> registry.VersionInfo | None:
    """Return the version with these weights, preferring the champion; None if there is none yet."""
    known = registry.find_by_tag(name, tags.WEIGHTS_SHA256, digest)
    is_champion = [version for version in known if champion is not None and version.version == champion.version]
    return next(iter(is_champion + known), None)


def _verdict_stands(
    known: registry.VersionInfo, champion: registry.VersionInfo | None, grounds: str, approval: bool, unpinned: str
) -> bool:
    """Return whether an earlier verdict on a version still holds, so that the version is not judged again.

    It holds if the version was champion once, or if a person ruled on it. Otherwise the gate's settings and the
    version's answers must be the same as then, and the reason against it must still hold. For a version that waits for
    a person, the champion that it was judged against must still be champion.
    """
    if decided(known) is None:
        return False
    if tags.PROMOTED_AT in known.tags or (champion is not None and champion.version == known.version):
        return True
    record = read_verdict(known)
    assert record is not None, "it was decided"
    if record.ruling is not None:
        return True
    if record.grounds and record.grounds != grounds:
        return False
    now = champion.version if champion is not None else None
    if record.decision == "waiting" and judged_against(known) != now:
        return False
    return not is_lifted(record, approval, unpinned)


def _judged_before(context: StepContext[PromotionSections], name: str, known: registry.VersionInfo) -> Promotion:
    """Return the earlier verdict on the same weights as this run's outcome; aliases stay unchanged."""
    record = read_verdict(known)
    assert record is not None, "it was decided"
    is_champion = registry.CHAMPION in known.aliases
    state = "champion" if is_champion else "not champion"

    def work(folder: Path, run_id: str) -> StepOutput:
        runs.set_tags(run_id, {tags.REUSED: known.run_id})
        return StepOutput(
            known.tags[tags.WEIGHTS_SHA256],
            f"nothing changed, version {known.version} ({state})",
            {},
            {"version": f"{name}/{known.version}"},
        )

    result = run_step(context, work).model_copy(update={"reused": True})
    return Promotion(result, known.version, record, is_champion)


def _origin(trained: StepResult, rewarded: StepResult | None, shown: StepResult, parent_run: str) -> dict[str, str]:
    origin = {
        **runs.inherited_tags(parent_run),
        tags.WEIGHTS_SHA256: trained.digest,
        tags.RUN: parent_run,
        tags.HELDOUT_ACCURACY: shown.headline,
        tags.EVALUATION_RUN: shown.run_id,
    }
    return origin | ({tags.REWARD_MODEL_VERSION: rewarded.links["version"]} if rewarded else {})


def _shown_origin(
    recipe: PromotionSections,
    trained: StepResult,
    rewarded: StepResult | None,
    candidate: StepResult,
    parent_run: str,
) -> dict[str, str]:
    """Return the origin of the version as its page shows it."""
    inherited = runs.inherited_tags(parent_run)
    return {
        "held-out problems": candidate.headline,
        "training": f"[{cell(trained.headline)}]({summaries.page_of_run(trained.run_id)})",
        "flow's run": f"[curves, samples, steps]({summaries.page_of_run(parent_run)})",
        "merged from": inherited.get(tags.MERGED_FROM, ""),
        "recipe": recipe.name,
        "reward model": rewarded.links["version"] if rewarded else "",
        "commit": inherited.get(tags.GIT_COMMIT, ""),
        "data revision": inherited.get(tags.DATA_REVISION, ""),
        "seed": inherited.get(tags.SEED, ""),
    }
