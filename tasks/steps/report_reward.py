"""Report on a reward model before a policy learns from it: its reliability on held-out pairs and policies' samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from prefect import get_run_logger, task

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.base.sections import of
from models.evaluation.records import PromptRecord
from models.learner.packing import Sequences
from models.method.learner import Role
from models.method.problem import Problem, texts_of
from models.parts.labels.reference import agreement_labels
from models.policies.base_folder import check_base_folder
from models.policies.folder import check_model_folder, hash_folder
from models.reward_models.calibration import PairReport, pair_report
from models.reward_models.fit import both_answers
from models.reward_models.gap import GapSettings
from models.reward_models.judges.open_judge import opened_judge
from models.reward_models.judges.report import judge_report, right_and_wrong
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.probes import moved, probes
from models.reward_models.ranking import agreement
from models.reward_models.read_pairs import read_pairs
from models.reward_models.scorer import Scorer, StepScorer
from models.reward_models.step_accuracy import FirstErrors, first_errors
from models.reward_models.suffixes import Suffix, search_suffix, words_without_answers
from models.reward_models.trust import ReportSettings, policy_report, threshold_violations
from tasks.compute.measuring import EvaluationSections, answers
from tasks.compute.open_engine import reward_scorer
from tasks.compute.run_tokens import RunTokens
from tasks.compute.shared_engine import engine_place
from tasks.data.inputs import log_rows
from tasks.pages import plots
from tasks.pages.cost import Cost
from tasks.pages.reward_report_page import RewardModelMeasurements, as_json, page
from tasks.registered.policy import PolicyFiles
from tasks.registered.reward_model import RewardModelFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.label_steps import known_solutions
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry

MOST_TOKENS = 1 << 20
"""Longest pair in tokens, if the reward model does not state its own limit."""
_AGAINST = "against"
"""Key in `StepResult.links` of the findings against the reward model, a line each."""


class ReportSections(EvaluationSections):
    """The sections of the recipe that a report reads."""

    samples: int = of("reward_model.report.samples")
    report: ReportSettings = of("reward_model.report")
    judge: JudgeSettings | None
    """The judge that compares answers, if the report uses one."""
    judge_seed: int = of("seed")
    """Seed of the judge's draws."""
    parallel: bool = of("reward_model.parallel")
    gap: GapSettings | None = of("reward_model.gap")


@task(name="reward_report", **cached_by_key)
def reward_report(
    context: StepContext[ReportSections],
    validated: StepResult,
    rewarded: RewardModelFiles,
    policies: Sequence[tuple[str, PolicyFiles]],
    others: Sequence[tuple[str, RewardModelFiles]],
    judges: Mapping[Role, PolicyFiles],
) -> StepResult:
    """Report on a reward model: accuracy on pairs, scores of policies' samples, biases, and a suffix that fools it.

    The report is logged as metrics, figures, JSON and the description of the step's run.

    Args:
        context: the step's.
        validated: the data.
        rewarded: the reward model.
        policies: policies by name, whose completions it scores; the first is the policy that is to be trained.
        others: other reward models by name, with which it should agree.
        judges: the model that judges, if the report uses one and it is on this machine; else empty.
    """
    recipe = context.recipe

    def work(folder: Path, run_id: str) -> StepOutput:
        data = clean_folder(validated)
        measurements, drawn_tokens = RewardModelMeasurements(wrong_drawn=recipe.report.against), 0
        registry.log_model_inputs(run_id, [rewarded.model_id, *(files.model_id for _, files in policies)])
        for number, (name, policy) in enumerate(policies):
            check_model_folder(policy.folder)
            tokens = RunTokens.read(policy.folder, rewarded.folder, recipe)
            problems = tokens.problems(data, "validation", recipe, recipe.report.problems)
            if not number:
                rows = [(problem.id, problem.prompt, problem.answer) for problem in problems]
                log_rows(run_id, recipe.data_name, "problems", "validation", rows, data, "evaluation")
            prompt_records, _ = answers(context.name, context.home, policy, recipe, tokens, problems, rewarded)
            prompt_records = tokens.counted(prompt_records)
            drawn_tokens += sum(completion.tokens for record in prompt_records for completion in record.samples)
            measurements.policies[name] = policy_report(prompt_records, recipe.report.against)
            if number:
                continue
            score = reward_scorer(rewarded, recipe, context.home, tokens.run)
            samples = _EncodedSamples.read(tokens, problems, prompt_records)
            longest = check_base_folder(rewarded.folder)[0] or MOST_TOKENS
            measurements.pairs = _report_pairs(data, tokens, score, longest, recipe)
            for probe, change in probes.items():
                changed_samples, scores = samples.fitting(change, longest)
                if len(changed_samples):
                    measurements.moved[probe] = moved(score, changed_samples, scores)
            if isinstance(score, StepScorer):
                measurements.first_errors = _find_first_errors(score, samples.sequences(), problems, data)
            if recipe.report.judged:
                judging = judges.get("judge", policy)
                with opened_judge(recipe.judge, judging.folder, policy.folder, recipe.judge_seed) as judge:
                    assert judge is not None, "the recipe check makes sure that a judge is there"
                    pairs = right_and_wrong(
                        [problem.prompt for problem in problems], prompt_records, recipe.report.judged
                    )
                    measurements.judge = judge_report(judge, recipe.report.judge_template, pairs)
            measurements.suffix, measurements.suffix_text = _search_suffix(
                tokens, problems, prompt_records, score, recipe.report, longest
            )
            for other, files in others:
                other_scores = reward_scorer(files, recipe, context.home, tokens.run)(samples.sequences())
                shape = (len(prompt_records), recipe.samples)
                agreements = agreement(samples.scores.reshape(shape), other_scores.numpy().reshape(shape))
                measurements.agreement[other] = float(agreements.mean())
                rescored = _rescored(prompt_records, other_scores.tolist())
                measurements.others[other] = policy_report(rescored, recipe.report.against)
        first_report = measurements.policies[policies[0][0]]
        findings = threshold_violations(
            recipe.report, first_report, measurements.suffix.fooled if measurements.suffix else None
        )
        records.log_figure(
            run_id,
            "plots/best_of_n.png",
            plots.best_of_n({name: (report.best_of, report.any_of) for name, report in measurements.policies.items()}),
        )
        if measurements.pairs is not None:
            curve = plots.reliability(measurements.pairs.curve, measurements.pairs.calibration_error)
            records.log_figure(run_id, "plots/calibration.png", curve)
        write_file(folder / "report.json", as_json(measurements, findings))
        records.log_artifact(run_id, folder / "report.json", "report")
        records.describe(run_id, page(measurements, findings))
        metrics = {f"reward_report/{name}": value for name, value in measurements.metrics().items()}
        headline = "; ".join(findings) if findings else _headline(measurements, policies[0][0])
        get_run_logger().info(f"{context.name}: {headline}")
        links = {_AGAINST: "\n".join(findings)}
        return StepOutput(hash_folder(folder), headline, metrics, links, tokens=Cost(tokens_sampled=drawn_tokens))

    with engine_place():
        return run_step(context, work)


def distrusted(reported: StepResult) -> list[str]:
    """Return the findings of a report, by the recipe's limits, against the reward model; empty if it can be trusted."""
    return reported.links[_AGAINST].splitlines()


def require_trust(reported: StepResult) -> None:
    """Check that a reward model's report has no findings against it.

    Raises:
        UserError: the report has findings against it.
    """
    if findings := distrusted(reported):
        reasons = "; ".join(findings)
        raise UserError(f"reward model: {reasons}; stopped before reinforcement learning (see run {reported.run_id})")


def _rescored(records: Sequence[PromptRecord], scores: Sequence[float]) -> list[PromptRecord]:
    """Return the records with other scores of the samples, [prompts * samples], in their order."""
    values = iter(scores)
    return [
        replace(record, samples=tuple(replace(sample, reward_score=next(values)) for sample in record.samples))
        for record in records
    ]


def _headline(measurements: RewardModelMeasurements, first: str) -> str:
    report = measurements.policies[first]
    largest_n = max(report.best_of)
    separated = f"separation {report.separation.estimate:.3f}, " if report.separation is not None else ""
    return f"{separated}the best of {largest_n} is right in {report.best_of[largest_n].estimate:.1%}, a sample in " + (
        f"{report.best_of[1].estimate:.1%}"
    )


def _report_pairs(
    data: Path, tokens: RunTokens, score: Scorer, longest: int, recipe: ReportSections
) -> PairReport | None:
    """Return the report on held-out pairs; None if there are none."""
    pairs, flaws = read_pairs(data, tokens.run, "validation", longest, recipe.parallel, recipe.gap)
    if not pairs:
        return None
    chosen, rejected = score(both_answers(pairs)).view(-1, 2).unbind(1)
    return pair_report((chosen - rejected).tolist(), flaws if any(flaws) else ())


def _find_first_errors(
    score: StepScorer, samples: Sequences, problems: Sequence[Problem], data: Path
) -> FirstErrors | None:
    """Return how often the first wrong step of samples is identified, compared with right solutions of the data.

    The result is None if the data contain no such solutions. `samples` has the same number for each problem.
    """
    references = known_solutions(data, "validation")
    prompts = [problem.prompt for problem in problems for _ in range(len(samples) // len(problems))]
    places = [place for place, ids in enumerate(samples.completions) if ids and prompts[place] in references]
    if not places:
        return None
    ends, values = score.steps(samples.take(places))
    steps = [(prompts[place], samples.completions[place], cut) for place, cut in zip(places, ends, strict=True)]
    labels = agreement_labels(score.codec, score.reading.marks, steps, references)
    return first_errors([row.tolist() for row in values], labels)


class _EncodedSamples:
    """Samples of a policy, encoded in the reward model's tokens, with their scores."""

    def __init__(self, codec: RunTokens, prompts: list[list[int]], records: Sequence[PromptRecord]) -> None:
        self._tokens = codec
        self._samples = [sample for record in records for sample in record.samples]
        counts = [len(record.samples) for record in records]
        self._prompts = [ids for ids, count in zip(prompts, counts, strict=True) for _ in range(count)]
        self.scores = np.array([sample.reward_score for sample in self._samples], dtype=np.float64)

    @classmethod
    def read(cls, tokens: RunTokens, problems: Sequence[Problem], records: Sequence[PromptRecord]) -> _EncodedSamples:
        return cls(tokens, tokens.run.prompts(*texts_of(problems)), records)

    def sequences(self, change: Callable[[str], str] = str) -> Sequences:
        """Return the samples, each changed by `change`; by default unchanged."""
        return Sequences(self._prompts, self._tokens.run.completions([change(sample.text) for sample in self._samples]))

    def fitting(self, change: Callable[[str], str], longest: int) -> tuple[Sequences, NDArray[np.float64]]:
        """Return the changed samples of at most `longest` tokens, with their scores before the change."""
        changed = self.sequences(change)
        fits = [place for place, tokens in enumerate(changed.lengths) if tokens <= longest]
        return changed.take(fits), self.scores[fits]


def _search_suffix(
    tokens: RunTokens,
    problems: Sequence[Problem],
    records: Sequence[PromptRecord],
    score: Scorer,
    settings: ReportSettings,
    longest: int,
) -> tuple[Suffix | None, str]:
    """Search for the suffix that raises the scores of wrong answers most; return it and its text.

    The result is None if no prompt has a right and a wrong sample that leave room for it within `longest` tokens.
    """
    codec = tokens.run
    prompts, wrong, right = [], [], []
    for ids, record in zip(codec.prompts(*texts_of(problems)), records, strict=True):
        sides = [
            codec.completions([sample.text for sample in record.samples if sample.finished and sample.correct == truth])
            for truth in (False, True)
        ]
        room = longest - len(ids) - settings.suffix
        if all(side and len(side[0]) <= room for side in sides):
            prompts.append(ids)
            wrong.append(sides[0][0])
            right.append(sides[1][0])
    candidates = words_without_answers(codec)
    if not settings.suffix or len(prompts) < 2 or not candidates:
        return None, ""
    suffix = search_suffix(
        score,
        prompts,
        wrong,
        right,
        candidates=candidates,
        length=settings.suffix,
        end=codec.end,
        tried=settings.tried,
    )
    (text,) = codec.text([suffix.ids])
    return suffix, text
