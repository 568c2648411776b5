"""The gate's judgement of a champion that a person set by hand, compared with the previous champion."""

from __future__ import annotations

from collections.abc import Mapping

from flows.runtime.steps import context_of
from flows.runtime.training import TrainingProgress
from models.base.errors import UserError
from tasks.gate.judgement import JudgementSections, OnGate
from tasks.registered.policy import PolicyFiles, registered_policy
from tasks.steps.judge_champion import ComparedEvaluations, judge_champion
from tasks.tracking import by_hand, registry
from tasks.tracking.by_hand import PendingChampion
from tasks.tracking.verdict_record import HandJudgement, decided, verdict_of
from tasks.tracking.verdict_text import verdict_text


def judge_hand_set_champion(training: TrainingProgress, gate: Mapping[str, OnGate], model: str) -> HandJudgement | None:
    """Judge the current champion by the gate if a person set it by hand and it is not judged yet; else return None.

    Args:
        gate: role -> evaluations for the verdict that the run has already made.
        model: registered name of the policies.
    """
    waiting = by_hand.waiting(model)
    if waiting is None:
        return None
    opened = training.opened
    measured = measure(training, waiting, gate, model)
    recipe = JudgementSections(opened.recipe)
    context = context_of(opened, "judge_champion", recipe, opened.run_id, name="judge champion")
    return judge_champion(context, waiting, measured)


def measure(
    training: TrainingProgress, waiting: PendingChampion, gate: Mapping[str, OnGate], model: str
) -> ComparedEvaluations | str:
    """Evaluate the champion, the previous champion and the anchor, or return in one sentence why this is impossible."""
    champion = registry.champion(model)
    if champion is None or champion.version != waiting.version:
        return "the gate did not judge it: it is champion no longer"
    if waiting.against is None:
        return "the gate did not judge it: no champion before it is known"
    facts = registry.facts_of(champion)
    verdict = verdict_of(facts) if decided(champion) is not None else None
    if verdict is not None and verdict.champion == waiting.against:
        return f"the gate compared it with version {waiting.against} when it was made: {verdict_text(verdict)}"
    try:
        before = registry.version_info(model, waiting.against)
    except UserError:
        return f"the gate did not judge it: version {waiting.against}, the champion before, was deleted"
    try:
        new, old = registered_policy(champion), registered_policy(before)
    except UserError as error:
        return f"the gate did not judge it: {error}"
    if new.digest == old.digest:
        return f"the gate did not judge it: its weights are those of version {before.version}, the champion before"
    anchor = registry.by_alias(model, registry.ANCHOR)
    there = {"champion": champion, "anchor": anchor}
    evaluated = {version.version: gate[role] for role, version in there.items() if version is not None and role in gate}

    def on_gate(role: str, version: int, policy: PolicyFiles) -> OnGate:
        return evaluated.get(version) or training.for_verdict(role, policy)

    measured = on_gate("champion", champion.version, new), on_gate("previous", before.version, old)
    fixed: OnGate | str
    if anchor is None:
        fixed = "no version has the alias anchor; `rewardflow anchor VERSION` names one"
    elif anchor.version in (champion.version, before.version):
        fixed = f"version {anchor.version} is the anchor itself"
    else:
        fixed = on_gate("anchor", anchor.version, registered_policy(anchor))
    return ComparedEvaluations(*measured, fixed, f"{new.digest} against {old.digest}")
