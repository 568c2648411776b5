"""The main flow: data, validation, warm start, reward model, reinforcement learning, evaluation, promotion.

A step whose inputs, settings and code are unchanged does not run again; its earlier result is reused. If the policy
begins with that of another recipe (`policy.base: {recipe: NAME}`), that recipe runs first, as a run of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from prefect import flow

from flows.runtime.environment import state_folder
from flows.runtime.judging_by_hand import judge_hand_set_champion
from flows.runtime.notifications import notify_decision
from flows.runtime.opening import FlowContext, notice_champion, open_flow
from flows.runtime.parameters import Overrides, RecipeName
from flows.runtime.steps import context_of
from flows.runtime.training import TrainingProgress, train_policy
from models.base.errors import UserError
from models.policies.build import StageSettings
from models.recipes.load import load_recipe
from models.recipes.stages import stages_before
from tasks.compute.shared_engine import shared_engine
from tasks.gate.judgement import OnGate
from tasks.harness.page import log_suites
from tasks.pages.description import UNPINNED, hand_page
from tasks.pages.review import write_review, write_short_review
from tasks.registered.base import version_of_stage
from tasks.registered.policy import policy_of_step, registered_policy
from tasks.runner.step import StepResult
from tasks.state import cut_off
from tasks.steps.fine_tune import why_not_learned
from tasks.steps.promote import Candidate, Promotion, PromotionSections, policy_name, promote
from tasks.steps.upload_reports import upload_reports
from tasks.tracking import aliases, registry, tags
from tasks.tracking.verdict_record import HandJudgement, decided


@dataclass
class TrainFlowResult:
    """Result of the train flow."""

    run_id: str
    steps: list[StepResult] = field(default_factory=list)
    promotion: Promotion | None = None
    """Result of the step promote; None if the recipe ends before reinforcement learning."""
    model: str = ""
    """Name of the registered model whose versions are the recipe's policies."""
    unpinned: str = ""
    """Why the run is not pinned by a commit; empty if it is."""
    by_hand: HandJudgement | None = None
    """The gate's judgement of a champion that a person set by hand; None if none waited for it."""
    collapsed: str = ""
    """Why the policy did not learn (collapsed or unchanged), in one sentence; empty if it did."""
    made: StepResult | None = None
    """Result of the last training of the policy: fine_tune, or warm_start without reinforcement learning."""
    stages: list[str] = field(default_factory=list)
    """One line for each run before this one in the chain of its recipe, the first stage first."""

    def stage(self) -> registry.VersionInfo:
        """Return the version with the policy, for the next run of a chain; it is registered if it is not yet."""
        assert self.made is not None, "the run has ended"
        return version_of_stage(self.model, self.made, self.run_id)


@flow(name="train", flow_run_name="train {recipe}", validate_parameters=True)
def train(
    recipe: RecipeName,
    overrides: Overrides = None,
    refresh: bool = False,
    cluster: str | None = None,
    resume: bool = False,
) -> TrainFlowResult:
    """Run a recipe, from the data to the promoted model.

    Args:
        recipe: path or name of a recipe.
        overrides: `key.path=value` each.
        refresh: run every step again, cached or not.
        cluster: address of the Ray cluster on which the recipe's `placement` is placed; None: this machine.
        resume: raise if the interrupted training cannot be resumed, instead of starting from the beginning.
    """
    stage, resume = run_stage(recipe, overrides or [], refresh, cluster, resume)
    with open_flow("train", recipe, overrides or [], stage.stage if stage is not None else None) as opened:
        outcome, validated = run_steps(opened, refresh, cluster, resume)
        if outcome.promotion is not None:
            notify_decision(opened.home, outcome.model, outcome.promotion, opened.page)
        if opened.recipe.reports is not None:
            upload_reports(opened.recipe.reports, opened.recipe.name, outcome.run_id, validated)
        if stage is not None and opened.base is not None:
            outcome.stages = [*stage.stages, stage_line(stage, opened.base.version)]
        return outcome


def run_stage(
    recipe: str, overrides: Sequence[str], refresh: bool, cluster: str | None, resume: bool
) -> tuple[TrainFlowResult | None, bool]:
    """Run the stage before a recipe, with the stages before that one.

    Args:
        recipe: path or name of the recipe.
        overrides: overrides of the recipe.
        refresh: run every step of the stages again.
        cluster: see `train`.
        resume: see `train`; it holds for the run of the chain that was interrupted.

    Returns:
        The stage's result, None if the recipe has no stage or is wrong; and `resume` for the recipe itself.

    Raises:
        UserError: a stage stopped with an error.
    """
    try:
        loaded = load_recipe(recipe, overrides)
        stages = stages_before(loaded)
    except UserError:  # `open_flow` raises it again, where people are notified
        return None, resume
    settings = loaded.policy.base
    if not isinstance(settings, StageSettings):
        return None, resume
    interrupted = any(cut_off.unfinished(state_folder(), stage.name) is not None for stage in stages)
    try:
        outcome = train(settings.recipe, list(settings.set), refresh, cluster, resume and interrupted)
    except UserError as error:
        raise UserError(f"the stage {stages[-1].name} stopped, so {loaded.name} did not begin: {error}") from error
    return outcome, resume and not interrupted


def stage_line(outcome: TrainFlowResult, version: registry.VersionInfo) -> str:
    """Return one line about the run of a stage: its version, and the gate's decision on it."""
    decision = outcome.promotion.decision if outcome.promotion is not None else "not judged, it has no schedule"
    return f"{version.uri}  {decision}" + (f"; {outcome.collapsed}" if outcome.collapsed else "")


def run_steps(
    opened: FlowContext, refresh: bool, cluster: str | None = None, resume: bool = False
) -> tuple[TrainFlowResult, StepResult]:
    """Run all steps of the flow in order. Returns the flow's result and that of the step validate."""
    recipe, run = opened.recipe, opened.run_id
    noticed = notice_champion(run, policy_name(recipe))
    with shared_engine(recipe.placement, cluster):
        training = train_policy(opened, refresh, resume)
        outcome = TrainFlowResult(run, training.steps, model=policy_name(recipe))
        facts = opened.facts | {"data": training.version.digest} | ({"champion": noticed} if noticed else {})
        validated, warmed, rewarded, tuned = training.validated, training.warmed, training.rewarded, training.tuned
        outcome.made = training.made
        if tuned is None:
            write_short_review(run, outcome.steps, facts, [validated, warmed, rewarded])
            return outcome, validated
        outcome.collapsed = why_not_learned(tuned)
        outcome.unpinned = facts.get(UNPINNED, "")
        if noticed := notice_champion(run, outcome.model, noticed):  # it may have changed during the training
            facts["champion"] = noticed
        champion = registry.champion(outcome.model)
        shown, gate = evaluate_splits(training, champion, outcome.model)
        # Before the candidate's look at the data: an interrupted look can resume only before another one is taken.
        outcome.by_hand = judge_hand_set_champion(training, gate, outcome.model)
    no_anchor = why_no_anchor(champion, outcome.model)
    promotion = outcome.promotion = promote(
        context_of(opened, "promote", PromotionSections(recipe), run),
        Candidate(tuned, rewarded, gate, shown["candidate"], champion, no_anchor, unpinned=outcome.unpinned),
    )
    outcome.steps.append(promotion.result)
    facts |= log_suites(run, training.on_suites)
    judged = hand_page(outcome.by_hand) if outcome.by_hand else ""
    write_review(run, recipe, promotion, tuned, shown, validated, outcome.steps, facts, judged)
    return outcome, validated


def why_no_anchor(champion: registry.VersionInfo | None, model: str) -> str:
    """Return why the verdict has no anchor in addition to the champion, in one sentence."""
    if champion is None and not aliases.history(model):
        return "no anchor exists before the first promotion"
    if champion is not None and registry.ANCHOR in champion.aliases:
        return f"version {champion.version} is champion and anchor in one"
    return "no version has the alias anchor; `rewardflow anchor VERSION` names one"


def evaluate_splits(
    training: TrainingProgress, champion: registry.VersionInfo | None, model: str
) -> tuple[dict[str, StepResult], dict[str, OnGate]]:
    """Evaluate base, candidate and champion on the validation split, and those that the verdict compares on the gate's.

    Returns role -> evaluation on the validation split, and role -> evaluations for the verdict.

    The anchor is evaluated for the verdict too, whether or not there is a champion. Without a champion, the base model
    takes its role. A candidate with the champion's weights was judged before.
    """
    warmed, tuned = training.warmed, training.tuned
    assert tuned is not None, "the recipe has a schedule"
    base = policy_of_step(warmed)
    shown = {"base": training.evaluated("base", base), "candidate": training.evaluated_candidate()}
    training.evaluated_on_suites("base", base)
    gate = {"candidate": training.for_verdict("candidate", policy_of_step(tuned))}
    # The champion's run may have been killed between alias and verdict: then it is judged like the first time.
    unjudged = champion is not None and decided(champion) is None
    same = champion is not None and champion.tags.get(tags.WEIGHTS_SHA256) == tuned.digest
    if same and not unjudged:
        return shown, gate
    if champion is None or same:
        gate["base"] = training.for_verdict("base", base)
    else:
        known = registered_policy(champion)
        shown["champion"] = training.evaluated("champion", known)
        gate["champion"] = training.for_verdict("champion", known)
    anchor = registry.by_alias(model, registry.ANCHOR)
    if anchor is not None and (champion is None or anchor.version != champion.version):
        gate["anchor"] = training.for_verdict("anchor", registered_policy(anchor))
    return shown, gate
