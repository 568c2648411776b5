"""The flows that merge policies: one puts the result through the gate, the other measures mixtures of two policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from flows.runtime.data_steps import call_held_out_validation, call_preparation, call_validation
from flows.runtime.evaluation_inputs import prepare_evaluation
from flows.runtime.frozen_policies import evaluated_with_models
from flows.runtime.notifications import notify_decision
from flows.runtime.opening import notice_champion, open_flow
from flows.runtime.parameters import Overrides
from flows.runtime.steps import call_step, context_of
from flows.runtime.suite_steps import call_suites, read_suites
from flows.train import TrainFlowResult, why_no_anchor
from models.base.sections import Sections
from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.front import WeightMixture, mixture_rows
from models.evaluation.metrics import prompt_values
from models.evaluation.table import read_records
from models.policies.folder import given_folder
from models.policies.hub import unpinned_base
from models.policies.merge import MergeSettings
from tasks.compute.shared_engine import shared_engine
from tasks.gate.judgement import OnGate
from tasks.harness.page import log_suites
from tasks.pages.description import UNPINNED
from tasks.pages.review import write_review
from tasks.registered.policy import PolicyFiles, named_policy, policy_of_step, registered_policy
from tasks.registered.reward_model import reward_model_of
from tasks.runner.step import StepResult
from tasks.steps.evaluate import GateSections, ShownSections, evaluate_policy
from tasks.steps.merge_policies import MergeSections, merge_policies
from tasks.steps.prepare_data import log_data
from tasks.steps.promote import Candidate, PromotionSections, policy_name, promote
from tasks.steps.warm_start import WarmStartSections, warm_start
from tasks.tracking import records, registry, runs, tags
from tasks.tracking.verdict_record import decided


@flow(name="merge", flow_run_name="merge for {recipe}", validate_parameters=False)
def merge(
    models: Sequence[str], base: str | None, settings: MergeSettings, recipe: str, overrides: Overrides = None
) -> TrainFlowResult:
    """Merge policies and judge the result as a candidate of a recipe.

    Args:
        models: NAME/VERSION of registered policies, or model folders.
        base: the same for the model that they were trained from; None: the recipe's warm start, if the method needs a
            base.
        settings: method and numbers.
        recipe: path or name of the recipe on whose problems the result is evaluated, and whose gate judges it.
        overrides: `key.path=value` each.

    Raises:
        UserError: a model does not exist, or the models cannot be merged.
    """
    with open_flow("merge", recipe, overrides or []) as opened:
        run, name = opened.run_id, policy_name(opened.recipe)
        notice_champion(run, name)
        parents = [named_policy(named) for named in models]
        suites = read_suites(opened)
        on_suites: dict[str, dict[str, StepResult]] = {}
        data = call_preparation(opened)
        runs.set_tags(run, {tags.DATA_REVISION: data.version.revision})
        log_data(run, data.version, "measured on")
        validated = call_validation(opened, data)
        held_out = call_held_out_validation(opened, data)
        opened, held_out, made_models = evaluated_with_models(opened, validated, held_out)
        warmed = call_step(opened, warm_start, WarmStartSections(opened.recipe), validated)
        origin: PolicyFiles | None = None
        if settings.needs_base:
            origin = named_policy(base)[0] if base is not None else policy_of_step(warmed)
        origin_label = f" on {base or 'the warm start'}" if settings.needs_base else ""
        description = f"{', '.join(models)}{origin_label} by {settings}"
        runs.set_tags(run, {tags.MERGED_FROM: description})
        opened.facts["merged from"] = description
        unpinned = unpinned_reasons(dict(zip(models, (version for _, version in parents), strict=True)))
        recipe_base = opened.recipe.policy.named_base
        if recipe_base is not None and given_folder(recipe_base) is None:
            unpinned.append(unpinned_base(recipe_base))
        reason = "; ".join(filter(None, (opened.code.unpinned, *data.unpinned, *unpinned)))
        if reason:
            get_run_logger().warning(f"not pinned, so it cannot be reproduced: {reason}")
            runs.set_tags(run, {tags.UNPINNED: reason})
            opened.facts[UNPINNED] = reason
        made = call_step(
            opened, merge_policies, MergeSections(opened.recipe), [f for f, _ in parents], origin, settings
        )
        steps = [data.result, validated, *made_models, warmed, made]
        first = next((version for _, version in parents if version is not None), None)
        rewarded = reward_model_of(first, opened.recipe)[1] if first is not None else None
        champion = registry.champion(name)

        def measured(role: str, sections: Sections, policy: PolicyFiles, rows: StepResult, *more: Any) -> StepResult:
            result = call_step(opened, evaluate_policy, sections, policy, rows, *more, warmed, name=role)
            steps.append(result)
            return result

        def measured_on_suites(role: str, policy: PolicyFiles) -> dict[str, StepResult]:
            on_suites[role] = call_suites(opened, suites, role, policy)
            steps.extend(on_suites[role].values())
            return on_suites[role]

        def on_gate(role: str, policy: PolicyFiles) -> OnGate:
            return OnGate(
                measured(f"gate {role}", GateSections(opened.recipe), policy, validated, rewarded),
                {
                    held: measured(f"gate {role} on {held}", GateSections(it.recipe), policy, it.validated, None)
                    for held, it in held_out.items()
                },
                measured_on_suites(role, policy),
            )

        with shared_engine(opened.recipe.placement):
            candidate, before = policy_of_step(made), policy_of_step(warmed)
            known = registered_policy(champion) if champion is not None else None
            shown_policies = {"base": before, "candidate": candidate} | ({"champion": known} if known else {})
            shown = {
                role: measured(f"evaluate {role}", ShownSections(opened.recipe), policy, validated, rewarded)
                for role, policy in shown_policies.items()
            }
            gate = {"candidate": on_gate("candidate", candidate)}
            same = champion is not None and champion.tags.get(tags.WEIGHTS_SHA256) == made.digest
            if not (same and champion is not None and decided(champion) is not None):
                gate |= (
                    {"champion": on_gate("champion", known)}
                    if known is not None and not same
                    else {"base": on_gate("base", before)}
                )
                anchor = registry.by_alias(name, registry.ANCHOR)
                if anchor is not None and (champion is None or anchor.version != champion.version):
                    gate["anchor"] = on_gate("anchor", registered_policy(anchor))
        judged = Candidate(
            made, None, gate, shown["candidate"], champion, why_no_anchor(champion, name), unpinned=reason
        )
        promotion = promote(context_of(opened, "promote", PromotionSections(opened.recipe), run), judged)
        steps.append(promotion.result)
        if first is not None and (reward_version := registry.facts_of(first).get(tags.REWARD_MODEL_VERSION)):
            registry.annotate(name, promotion.version, {tags.REWARD_MODEL_VERSION: reward_version})
        facts = opened.facts | {"data": data.version.digest} | log_suites(run, on_suites)
        write_review(run, opened.recipe, promotion, made, shown, validated, steps, facts)
        notify_decision(opened.home, name, promotion, opened.page)
        return TrainFlowResult(run, steps, promotion, name, reason)


def unpinned_reasons(parents: Mapping[str, registry.VersionInfo | None]) -> list[str]:
    """Return why models are not pinned by commits, one reason for each that is not.

    Args:
        parents: name -> version; None for a model folder.
    """
    reasons = []
    for named, version in parents.items():
        if version is None:
            reasons.append(f"no commit holds the model folder {named}")
        elif reason := registry.facts_of(version).get(tags.UNPINNED, ""):
            reasons.append(f"{named} is not pinned ({reason})")
    return reasons


@flow(name="interpolate", flow_run_name="interpolate {first} and {other}")
def interpolate(
    first: str, other: str, shares: Sequence[float], recipe: str, overrides: Overrides = None
) -> tuple[str, list[WeightMixture]]:
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


def _mixture(share: float, measured: StepResult) -> WeightMixture:
    known = read_records(Path(measured.folder) / "records.parquet")
    accuracy, diversity = (
        bootstrap_mean(prompt_values(known, name)) for name in ("sampled_accuracy", "distinct_share")
    )
    return WeightMixture(share, accuracy, diversity)
