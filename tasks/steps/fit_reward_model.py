"""Step 4: fit of a Bradley-Terry reward model to preference pairs; below its minimum accuracy, the flow stops here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from prefect import get_run_logger, task

from models.base.device import on_device
from models.base.errors import UserError
from models.base.sections import Sections, of
from models.datasets.schema import Kind
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from models.recipes.schema import RewardModelSection
from models.reward_models.annotators import (
    GroupSettings,
    PairsAt,
    annotators_of,
    grouped_pairs,
    held_out_groups,
)
from models.reward_models.bare_texts import write_bare
from models.reward_models.calibration import pair_report
from models.reward_models.ensemble import Ensemble, disagreement, levels_of, member_folders, write_ensemble
from models.reward_models.facts import write_facts
from models.reward_models.fit import Pair
from models.reward_models.goal import LEARNED_FROM, goal_of, write_goal
from models.reward_models.model import load_reward_model, reward_model_from_policy
from models.reward_models.principles import under_principles, write_principles
from models.reward_models.read_pairs import read_pairs
from models.reward_models.strength import StrengthSettings, judged_pairs, strength_of
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.token_cache import CachedCodec
from models.text.tokenizer import load_tokenizer
from models.training.fits import RewardFit, fit_and_score, fit_preferences
from tasks.compute.fitting import fit_together
from tasks.compute.precision import Precision, learner_autocast, precision_folder
from tasks.compute.shared_engine import learner_place, learners
from tasks.data.inputs import UsedRows, log_rows
from tasks.pages import plots
from tasks.pages.version_page import reward_model_page
from tasks.runner.caching import cached_by_key
from tasks.runner.progress import progress
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step, token_folder
from tasks.steps.validate_data import clean_folder, example_of
from tasks.tracking import records, registry, runs, summaries, tags
from tasks.tracking.metrics import MetricLog

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


FIRST_JUDGE = 1000
"""Offset from the recipe's seed to the seeds of reward models that only judge pairs; no ensemble member uses these."""


PAIRED: tuple[Kind, str, str] = ("preferences", "prompt", "chosen")
BARE: tuple[Kind, str] = ("demonstrations", "completion")
"""Rows and columns from which an example text for the model is built."""


class RewardModelSections(Sections):
    """The sections of the recipe that the fit of a reward model reads."""

    name: str
    data_name: str = of("data.name")
    data_template: str | None = of("data.template")
    seed: int
    reward_model: RewardModelSection | None
    chat: bool = of("policy.chat")
    system: str | None = of("policy.system")
    precision: Precision = of("policy.precision")
    trust_remote_code: bool = of("policy.trust_remote_code")


@task(name="reward_model", **cached_by_key)
def reward_model(
    context: StepContext[RewardModelSections],
    validated: StepResult,
    warmed: StepResult,
    labelled_pairs: StepResult | None = None,
) -> StepResult:
    """Fit a reward model, evaluate it on held-out pairs, and register it.

    It is written to `reward_model/` of the step's folder. The pairs are those of `labelled_pairs`, the
    result of `label_pairs`; None: those of the data.

    Raises:
        UserError: its held-out accuracy is below the recipe's `reward_model.least_accuracy`.
    """
    recipe, home = context.recipe, context.home
    section = recipe.reward_model
    assert section is not None

    def work(folder: Path, run_id: str) -> StepOutput:
        data = Path(labelled_pairs.folder) if labelled_pairs else clean_folder(validated)
        start = Path(warmed.folder) / "policy"
        registry.log_model_inputs(run_id, [warmed.links["model_id"]])
        trusted = recipe.trust_remote_code
        tokenizer = load_tokenizer(start, trust_remote_code=trusted)
        form = PromptForm.of(recipe.system, recipe.data_template)
        codec = CachedCodec(tokenizer, recipe.chat, ends_of_folder(start), form, folder=token_folder(home))
        model = reward_model_from_policy(start, seed=recipe.seed, trust_remote_code=trusted)
        fit, flaws, held_out_rows = _read_fit(model, data, codec, recipe, section, home, start, folder, run_id)
        members, scores, shares = [], [], tuple[float, ...]()
        with MetricLog(run_id, folder / "metrics.jsonl") as log:
            if section.strength is not None:
                fit, flipped = _judge_pairs(fit, section.strength, log, home, run_id)
            fits = [replace(fit, seed=recipe.seed + number) for number in range(_count_members(section))]
            if section.groups is not None:
                parts, shares = _group_pairs(fit, section.groups, log, home, run_id)
                fits = [replace(member_fit, pairs=part) for member_fit, part in zip(fits, parts, strict=True)]
            for number, member_fit in enumerate(fits):
                if number:
                    model = reward_model_from_policy(start, seed=member_fit.seed, trust_remote_code=trusted)
                model, member_scores = _fit_member(
                    model, member_fit, log, home, run_id, number, longest=_count_updates(fit)
                )
                model.config.pad_token_id = codec.pad
                members.append(model)
                scores.append(member_scores)
        ensemble = _ensemble_rule(section, scores)
        chosen, rejected = (torch.stack(side) for side in zip(*scores, strict=True))
        if ensemble is None:
            margins = chosen[0] - rejected[0]
        elif shares:
            groups = held_out_groups(chosen - rejected, annotators_of(fit.judged), shares)
            margins = (chosen - rejected)[groups, range(len(groups))]
        else:
            margins = ensemble.read(chosen) - ensemble.read(rejected)
        report = pair_report(margins.tolist(), flaws if any(flaws) else ())
        metrics = {f"reward_model/{name}": value for name, value in report.metrics().items()}
        if section.strength is not None:
            metrics["reward_model/flipped"] = flipped
        if ensemble is not None:
            metrics["reward_model/disagreement"] = disagreement(chosen - rejected)
        metrics |= {f"reward_model/annotators_of_group_{number}": share for number, share in enumerate(shares, 1)}
        records.log_figure(run_id, "plots/calibration.png", plots.reliability(report.curve, report.calibration_error))

        def write_extra(target: Path) -> None:
            if section.principles is not None:
                write_principles(target, section.principles)
            if ensemble is not None:
                for member, place in zip(members[1:], member_folders(target, len(members))[1:], strict=True):
                    member.save_pretrained(place)
                write_ensemble(target, ensemble)
            if section.parallel:
                write_bare(target)
            if section.facts is not None:
                write_facts(target, section.facts)
            if section.has_goal:
                write_goal(target, _compute_goal(members[0], fit, home, run_id))

        digest = save_model_folder(members[0], tokenizer, folder / "reward_model", write_extra)
        example = example_of(data, *(BARE if section.parallel else PAIRED))
        model_id = registry.log_model(
            run_id, folder / "reward_model", "reward-model", "text-classification", example=example
        )
        accuracy = f"{report.accuracy:.3f}"
        version = register(recipe, model_id, digest, accuracy, context.run)
        get_run_logger().info(f"reward model: held-out pair accuracy {accuracy}, ECE {report.calibration_error:.3f}")
        if report.accuracy.estimate < section.least_accuracy:
            raise UserError(
                f"reward model: held-out pair accuracy {accuracy} is below reward_model.least_accuracy "
                f"{section.least_accuracy}; stopped before reinforcement learning (see its run {run_id})"
            )
        measured = records.MeasurementContext(model_id, *held_out_rows)
        return StepOutput(
            digest, f"pair accuracy {accuracy}", metrics, {"model_id": model_id, "version": version}, measured
        )

    with learner_place():
        return run_step(context, work)


def _read_fit(
    model: PreTrainedModel,
    data: Path,
    codec: Codec,
    recipe: RewardModelSections,
    section: RewardModelSection,
    home: Path,
    start: Path,
    folder: Path,
    run_id: str,
) -> tuple[RewardFit, list[str], UsedRows]:
    """Read the pairs and return the fit, the flaw of each held-out pair, and the logged name of the held-out pairs."""
    principles = section.principles or {}
    prefixes = codec.inside(list(principles))
    longest = int(model.config.get_text_config().max_position_embeddings) - max(map(len, prefixes), default=0)
    pairs, _ = read_pairs(data, codec, "train", longest, section.parallel, section.gap, section.facts)
    held_out, flaws = read_pairs(data, codec, "validation", longest, section.parallel, section.gap, section.facts)
    kind: Kind = "demonstrations" if section.parallel else "preferences"
    if not pairs or not held_out:
        raise UserError(
            f"reward_model: the data set {recipe.data_name} has {len(pairs)} train and {len(held_out)} "
            f"validation pairs that fit {longest} tokens; set reward_model: null to do without one"
        )
    log_rows(run_id, recipe.data_name, kind, "train", map(astuple, pairs), data)
    held_out_rows = log_rows(run_id, recipe.data_name, kind, "validation", map(astuple, held_out), data)
    if principles:
        rules = list(principles.values())
        pairs, ordered = (under_principles(split_pairs, prefixes, rules) for split_pairs in (pairs, held_out))
        held_out, flaws = ordered, [f"principle_{number + 1}" for number in ordered.number.tolist()]
    fit = RewardFit(
        seed=recipe.seed,
        precision=recipe.precision,
        trust_remote_code=recipe.trust_remote_code,
        start=start.absolute(),
        precisions=precision_folder(home).absolute(),
        result=(folder / "fitted").absolute(),
        settings=section.fit,
        pairs=pairs,
        judged=held_out,
    )
    return fit, flaws, held_out_rows


def _judge_pairs(
    fit: RewardFit, settings: StrengthSettings, log: MetricLog, home: Path, run_id: str
) -> tuple[RewardFit, float]:
    """Fit several reward models that judge the pairs; return the fit to the judged pairs and the share reversed."""
    margins = []
    for number in range(settings.members):
        seed = fit.seed + FIRST_JUDGE + number
        model = reward_model_from_policy(fit.start, seed=seed, trust_remote_code=fit.trust_remote_code)
        judge = replace(fit, seed=seed, judged=fit.pairs)
        _, (chosen, rejected) = _fit_member(model, judge, log, home, run_id, number, "judge")
        margins.append(chosen - rejected)
    pairs = judged_pairs(fit.pairs, strength_of(torch.stack(margins)), settings)
    return replace(fit, pairs=pairs), float(np.mean(pairs.flipped))


def _compute_goal(model: PreTrainedModel, fit: RewardFit, home: Path, run_id: str) -> Tensor:
    """Compute the goal (models.reward_models.goal) from the chosen completions of the first `LEARNED_FROM` pairs."""
    pairs = fit.pairs[:LEARNED_FROM]
    good = Sequences([pair.prompt for pair in pairs], [pair.chosen for pair in pairs])
    autocast = learner_autocast(fit.precision, on_device(model), home, run_id)
    return goal_of(model, good, token_budget=fit.settings.token_budget, autocast=autocast)


def _group_pairs(
    fit: RewardFit, settings: GroupSettings, log: MetricLog, home: Path, run_id: str
) -> tuple[list[PairsAt], tuple[float, ...]]:
    """Divide annotators into groups; return the pairs of each group and its share of the annotators, both [groups]."""
    longest = _count_updates(fit)

    def margins(parts: Sequence[Sequence[Pair]], first: int) -> Tensor:
        rows = []
        for place, part in enumerate(parts):
            seed = fit.seed + FIRST_JUDGE + place
            model = reward_model_from_policy(fit.start, seed=seed, trust_remote_code=fit.trust_remote_code)
            judge = replace(fit, seed=seed, pairs=part, judged=fit.pairs)
            _, (chosen, rejected) = _fit_member(model, judge, log, home, run_id, first + place, "judge", longest)
            rows.append(chosen - rejected)
        return torch.stack(rows)

    return grouped_pairs(fit.pairs, settings, margins)


def _count_updates(fit: RewardFit) -> int:
    """Return the number of updates of a fit to all pairs."""
    return fit.settings.updates(len(fit.pairs))


def _count_members(section: RewardModelSection) -> int:
    """Return how many reward models are fitted and kept."""
    if section.groups is not None:
        return section.groups.count
    return section.ensemble.members if section.ensemble is not None else 1


def _ensemble_rule(section: RewardModelSection, scores: Sequence[tuple[Tensor, Tensor]]) -> Ensemble | None:
    """Return the rule that combines the members, from their scores of the held-out pairs; None: there is only one."""
    settings = section.ensemble
    if section.groups is not None:
        return Ensemble("worst_group", 0.0, levels_of(scores))
    return Ensemble(settings.rule, settings.penalty, levels_of(scores)) if settings is not None else None


def _fit_member(
    model: PreTrainedModel,
    fit: RewardFit,
    log: MetricLog,
    home: Path,
    run_id: str,
    number: int,
    role: Literal["train", "judge"] = "train",
    longest: int | None = None,
) -> tuple[PreTrainedModel, tuple[Tensor, Tensor]]:
    """Fit a model and return it with the scores of the chosen and of the rejected completions of the held-out pairs.

    Args:
        number: index of the member, from 0; its updates are logged after those of the members before it.
        role: train, or judge if it only judges the pairs; part of its metrics' names.
        longest: updates of the longest of the fits that are logged one after the other; None: all have the same number.
    """
    total = _count_updates(fit)
    name = " ".join(filter(None, ("reward model", role if role == "judge" else "", str(number + 1) if number else "")))
    with progress(name, total, ("loss", "accuracy")) as advance:

        def report(step: int, metrics: dict[str, float]) -> None:
            advance(step, metrics)
            log(
                number * (longest or total) + step,
                {f"reward_model/{role}_{key}": value for key, value in metrics.items()},
            )

        if learners() > 1:
            scores = fit_together(fit_preferences, fit, log, report, run_id)
            model = load_reward_model(fit.result, trust_remote_code=fit.trust_remote_code)
            shutil.rmtree(fit.result)
        else:
            autocast = learner_autocast(fit.precision, on_device(model), home, run_id)
            scores = fit_and_score(model, fit, autocast, report)
    return model, scores


def register(
    recipe: RewardModelSections, model_id: str, digest: str, accuracy: str, parent_run: str, unit: str = "pair"
) -> str:
    """Register the reward model; equal weights are registered once. Return NAME/VERSION.

    Args:
        recipe: determines its name.
        model_id: its LoggedModel.
        digest: content hash of its folder.
        accuracy: held-out accuracy.
        parent_run: the flow's run.
        unit: unit of the accuracy: pairs of completions, or steps.
    """
    name = f"{recipe.name}-reward-model"
    registered = registry.find_by_tag(name, tags.WEIGHTS_SHA256, digest)
    if registered:
        return f"{name}/{registered[0].version}"
    version_tags = {
        tags.WEIGHTS_SHA256: digest,
        tags.HELDOUT_ACCURACY: accuracy,
        tags.RUN: parent_run,
        **runs.inherited_tags(parent_run),
    }
    description = (
        f"**Held-out {unit} accuracy {accuracy}**\n\n"
        f"Fitted in [this flow's run]({summaries.page_of_run(parent_run)}) on the "
        f"{'preferences' if unit == 'pair' else 'labelled solutions'} of `{recipe.data_name}`."
    )
    version = registry.register(name, model_id, version_tags, description)
    registry.describe_model(name, reward_model_page(recipe.name))
    return f"{name}/{version}"
