"""The main flow: data, validation, warm start, reward model, reinforcement learning, evaluation, promotion.

A step whose inputs, settings and code are unchanged does not run again; its earlier result is reused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prefect import flow

from flows.runtime.judging_by_hand import judge_hand_set_champion
from flows.runtime.notifications import notify_decision
from flows.runtime.opening import FlowContext, notice_champion, open_flow
from flows.runtime.parameters import Overrides, RecipeName
from flows.runtime.steps import context_of
from flows.runtime.training import TrainingProgress, train_policy
from tasks.compute.shared_engine import shared_engine
from tasks.gate.judgement import OnGate
from tasks.harness.page import log_suites
from tasks.pages.description import UNPINNED, hand_page
from tasks.pages.review import write_review, write_short_review
from tasks.registered.policy import policy_of_step, registered_policy
from tasks.runner.step import StepResult
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
    with open_flow("train", recipe, overrides or []) as opened:
        outcome, validated = run_steps(opened, refresh, cluster, resume)
        if outcome.promotion is not None:
            notify_decision(opened.home, outcome.model, outcome.promotion, opened.page)
        if opened.recipe.reports is not None:
            upload_reports(opened.recipe.reports, opened.recipe.name, outcome.run_id, validated)
        return outcome


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
