"""The training of a fine-tuning step, in this process or on several learners, and the records of its rounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from prefect import get_run_logger

from models.base.ranks import ALONE
from models.base.sections import of
from models.engines.engine import Engine
from models.engines.hosted import Order
from models.learner.precision import Precision
from models.learner.supervised import Report
from models.method.alarm import AlarmSettings, Collapse
from models.method.learner import Role
from models.method.problem import Problem
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.method.truncation import TruncationSettings
from models.policies.build import PolicySettings
from models.policies.teacher import TeacherSettings
from models.reward_models.judges.settings import JudgeSettings
from models.text.encoding import Codec
from models.training import first_rounds
from models.training.fits import Fitted
from models.training.read_problems import longest_in_training
from models.training.train import Training, TrainingFolders, train
from models.training.watchers import Watchers
from tasks.compute.open_engine import EngineSections, engine_for
from tasks.compute.precision import precision_folder
from tasks.compute.shared_engine import learners, place_for_learners
from tasks.pages.curves import first_curves
from tasks.registered.reward_model import made_reward_model
from tasks.runner import interrupt
from tasks.runner.progress import progress
from tasks.runner.results import CHECKPOINTS
from tasks.runner.step import StepResult, reference_folder
from tasks.tracking import records, runs, tags
from tasks.tracking.metrics import MetricLog

T = TypeVar("T")
_LOG = logging.getLogger("rewardflow.steps")
JOURNAL = "metrics.jsonl"
"""Metrics of every round, in the step's folder."""
POLICY = "policy"
"""The resulting model folder, in the step's folder."""


class FineTuneSections(EngineSections):
    """The sections of the recipe that a fine-tuning reads."""

    seed: int
    policy: PolicySettings = of("policy")
    score_budget: int | None = of("reward_model.fit.token_budget")
    slots: Slots
    schedule: ScheduleSettings | None
    open_ended: bool
    """Whether the number of completions is not known in advance; derived from slots and schedule."""
    truncated: TruncationSettings
    alarm: AlarmSettings | None
    teacher: TeacherSettings | None
    judge: JudgeSettings | None


@dataclass(frozen=True, kw_only=True)
class FineTuneJob:
    """Inputs and folders of a fine-tuning."""

    recipe: FineTuneSections
    settings: ScheduleSettings
    start: Path
    """The model folder that the policy is initialised from."""
    codec: Codec
    problems: Sequence[Problem]
    teachers: Mapping[Role, Path]
    rewarded: StepResult | None
    home: Path
    folder: Path
    """Folder of the step: checkpoints, journal, and the resulting policy."""
    run_id: str


@dataclass
class LastMetrics:
    """The last metrics of a training, and the time of the rounds that this process ran."""

    last: dict[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    seconds: float = 0.0
    """Wall time of the rounds, seconds."""


@contextmanager
def watched_rounds(rounds: int, slots: Slots, folder: Path, run_id: str) -> Iterator[tuple[Watchers, LastMetrics]]:
    """Yield the callbacks that record a training's rounds, and the last metrics that they received.

    They write to the journal, the tracking store and a progress bar, and log a warning after the first rounds if
    nothing is learned.
    """
    last_metrics = LastMetrics()
    first_values: dict[int, dict[str, float]] = {}
    with (
        MetricLog(run_id, folder / JOURNAL) as log,
        progress("fine-tune", rounds, ("reward/total", "rollouts/length")) as advance,
    ):

        def metrics(round_number: int, values: dict[str, float]) -> None:
            last_metrics.last.update(values)
            last_metrics.seconds += values["seconds/round"]
            advance(round_number, values)
            log(round_number, values | first_curves(values))
            if round_number <= first_rounds.ROUNDS:
                first_values[round_number] = values
                if len(first_values) == round_number == first_rounds.ROUNDS:
                    for line in first_rounds.warnings_of(list(first_values.values()), slots):
                        _LOG.warning("fine-tune: %s", line)

        def samples(round_number: int, rows: list[dict[str, object]]) -> None:
            records.log_table(run_id, f"samples/round_{round_number:05d}.json", rows)

        def resumed(done: int) -> None:
            log.replay(done)
            if done:
                get_run_logger().info(f"going on from the checkpoint after round {done}")
                advance(done, {})

        def opened(precision: Precision, shape: str) -> None:
            runs.set_tags(run_id, {tags.PRECISION: precision, tags.PRECISION_OF: shape})

        yield Watchers(metrics, samples, resumed, interrupt.raise_again, opened), last_metrics


def fit_policy(job: FineTuneJob, watchers: Watchers) -> Collapse | None:
    """Run the loop in this process, or on the flow's learners if it has several, and write the policy.

    Returns:
        The policy's collapse, if there was one.

    Raises:
        UserError: see `models.training.train.train`.
    """
    training = training_of(job)
    return (_fit_with_learners if learners() > 1 else _fit_here)(job, training, watchers)


def training_of(job: FineTuneJob) -> Training:
    """Build the training of a fine-tuning; its folders are absolute paths, which every learner's machine must have."""
    recipe, reward_model = job.recipe, made_reward_model(job.rewarded)
    return Training(
        seed=recipe.seed,
        policy=recipe.policy,
        slots=recipe.slots,
        schedule=job.settings,
        truncated=recipe.truncated,
        alarm=recipe.alarm,
        start=job.start.absolute(),
        problems=job.problems,
        form=job.codec.form,
        teachers={role: folder.absolute() for role, folder in job.teachers.items()},
        served=recipe.teacher,
        judge=recipe.judge,
        reward_model=None if reward_model is None else reward_model.folder.absolute(),
        score_budget=recipe.score_budget,
        folders=TrainingFolders(
            checkpoints=(job.folder / CHECKPOINTS).absolute(),
            result=(job.folder / POLICY).absolute(),
            precisions=precision_folder(job.home).absolute(),
            reference_log_probs=reference_folder(job.home).absolute(),
        ),
    )


def _fit_here(job: FineTuneJob, training: Training, watchers: Watchers) -> Collapse | None:
    """Run the loop in this process, with the flow's engine."""

    def engine(autocast: torch.dtype | None) -> AbstractContextManager[Engine]:
        return engine_for(job.start, job.recipe, job.codec, autocast, job.problems)

    return train(training, ALONE, engine, watchers)


def _fit_with_learners(job: FineTuneJob, training: Training, watchers: Watchers) -> Collapse | None:
    """Run the loop on the flow's learners, which write the policy."""
    from tasks.compute.learner_group import Joint, learn_together

    order = Order(
        folder=training.start,
        settings=job.recipe.engine,
        longest=longest_in_training(job.problems, job.codec, job.recipe),
        end=job.codec.ends,
        dtype=torch.float32,
        trust_remote_code=job.recipe.policy.trust_remote_code,
    )
    collapse: Collapse | None = learn_together(*place_for_learners(), Joint(train, training, order), watchers)
    return collapse


def fit_together(make: Callable[..., Fitted[T]], fit: object, log: MetricLog, report: Report, run_id: str) -> T:
    """Run a fit of `models.training.fits` on the flow's learners, and return the fit's measurements.

    Raises:
        UserError: any error of the learners.
    """
    from tasks.compute.learner_group import Joint, learn_together

    def resumed(done: int) -> None:
        log.replay(done)

    watchers = Watchers(report, lambda number, rows: None, resumed, interrupt.raise_again)
    fitted: Fitted[T] = learn_together(*place_for_learners(), Joint(make, fit), watchers)
    runs.set_tags(run_id, {tags.PRECISION: fitted.precision})
    return fitted.measured
