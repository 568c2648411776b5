"""Entry point of a training: its inputs as data, the opening of its models, and the run to its end.

It does not depend on how the processes were started or where the metrics are logged: the first rank reports to a
`Watchers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from models.base.device import on_device
from models.base.ranks import Ranks
from models.engines.engine import Engine
from models.engines.first_rank import FirstRankEngine
from models.learner.out_of_memory import NeedsLess
from models.learner.precision import Precision, autocast_rule, shape_of
from models.method.alarm import AlarmSettings, Collapse
from models.method.learner import Learner, Role
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.resources import RunResources
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.method.truncation import WRONG, TruncationSettings
from models.policies.base_models.source import carry_source
from models.policies.build import PolicySettings, load_causal_model, open_tokenizer
from models.policies.folder import save_model_folder
from models.policies.save_whole import save_whole, whole_model
from models.policies.teacher import TeacherSettings
from models.policies.weights import plain_model
from models.recipes.schema import Recipe
from models.reward_models.judges.open_judge import opened_judge
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.scorer import open_scorer
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import BARE, PromptForm
from models.training.build import build_learner, open_teachers
from models.training.known_log_probs import with_reference
from models.training.loop import run_loop
from models.training.watchers import Watchers

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class TrainingFolders:
    """Folders of a training, which exist on every machine of its ranks."""

    checkpoints: Path
    """Checkpoints, which all ranks write and read."""
    result: Path
    """The model folder that the trained policy is written to."""
    precisions: Path
    """Measurements of precisions, if the recipe leaves the precision open."""
    reference_log_probs: Path
    """Log-probs under references that never move."""

    @classmethod
    def below(cls, folder: Path) -> TrainingFolders:
        """Return the default folders below `folder`."""
        return cls(folder / "checkpoints", folder / "policy", folder / "precisions", folder / "reference_log_probs")


@dataclass(frozen=True, kw_only=True)
class Training:
    """The inputs, settings and folders of a training."""

    seed: int
    slots: Slots
    schedule: ScheduleSettings
    start: Path
    """The model folder that the policy begins with."""
    problems: Sequence[Problem]
    folders: TrainingFolders
    policy: PolicySettings = field(default_factory=PolicySettings)
    truncated: TruncationSettings = WRONG
    alarm: AlarmSettings | None = None
    form: PromptForm = BARE
    """Template and system message that the recipe writes around every prompt."""
    teachers: Mapping[Role, Path] = field(default_factory=dict)
    """Role -> model folder of a frozen model: teacher, contrast, judge."""
    served: TeacherSettings | None = None
    """The recipe's teacher, which may be at an address."""
    judge: JudgeSettings | None = None
    """The recipe's section `judge`; the first rank sends the requests for all."""
    reward_model: Path | None = None
    """Folder of the fitted reward model; None: no reward reads one."""
    score_budget: int | None = None
    """Tokens of a packed row of the reward model; None without a reward model."""

    @classmethod
    def of(cls, recipe: Recipe, start: Path, problems: Sequence[Problem], folder: Path, **changed: Any) -> Training:
        """Build the training of a recipe, with its folders below `folder`.

        Args:
            recipe: has a schedule.
            start: the model folder that the policy begins with.
            problems: encoded prompts (`models.training.read_problems.read_prompts`).
            changed: other fields, such as the folder of a fitted `reward_model`, or instead of the recipe's `slots`.
        """
        assert recipe.schedule is not None, "the recipe has no schedule: there is nothing to train"
        fields: dict[str, Any] = {
            "seed": recipe.seed,
            "slots": recipe.slots,
            "schedule": recipe.schedule,
            "start": start,
            "problems": problems,
            "folders": TrainingFolders.below(folder),
            "policy": recipe.policy,
            "truncated": recipe.truncated,
            "alarm": recipe.alarm,
            "form": PromptForm.of(recipe.policy.system, recipe.data.template),
            "served": recipe.teacher,
            "judge": recipe.judge,
            "score_budget": recipe.reward_model.fit.token_budget if recipe.reward_model is not None else None,
        }
        return cls(**(fields | changed))

    def with_less(self, less: NeedsLess) -> Training:
        """Return the same training with settings that need less memory."""
        recompute = less.recompute or self.schedule.gradient_checkpointing
        schedule = replace(self.schedule, token_budget=less.budget, gradient_checkpointing=recompute)
        return replace(self, schedule=schedule)

    def autocast_for(self, model: nn.Module) -> torch.dtype | None:
        """Return the autocast dtype for `model` by `policy.precision`; None: plain float32. `auto` measures it."""
        return autocast_rule(self.policy.precision, self.folders.precisions)(model)


OpenEngine = Callable[[torch.dtype | None], AbstractContextManager[Engine]]
"""Opens the engine, given the learner's autocast dtype, None for plain float32."""


@dataclass(frozen=True)
class OpenTraining:
    """A training whose models are open."""

    training: Training
    resources: RunResources
    problems: Sequence[Problem]
    """The training's problems, with log-probs under a reference that never moves if the source reads them."""
    shape: str
    """Key of the policy's shape (`models.learner.precision.shape_of`)."""

    @property
    def precision(self) -> Precision:
        """The precision that the policy learns in."""
        return "float32" if self.learner.autocast is None else "bfloat16"

    @property
    def learner(self) -> Learner:
        """The policy, and everything else that changes during the training."""
        return self.resources.learner

    @property
    def codec(self) -> Codec:
        """The policy's tokenizer."""
        return self.resources.codec

    def run(self, watchers: Watchers) -> Collapse | None:
        """Train the policy in place, round after round; see `models.training.loop.run_loop`."""
        training = self.training
        return run_loop(
            self.resources,
            training.slots,
            training.schedule,
            self.problems,
            training.folders.checkpoints,
            watchers,
            training.alarm,
        )

    def save(self) -> None:
        """Write the policy, adapters merged in, and the files that its parts export to `training.folders.result`.

        With one rank an adapted policy must not train further.
        """
        training, ranks = self.training, self.learner.ranks
        learner = self._with_whole_reference()

        def complete(folder: Path) -> None:
            carry_source(training.start, folder)
            training.slots.rollouts.export(learner, self.codec, training.start, folder)
            training.slots.advantage.export(learner, folder)

        if ranks.count == 1:
            save_model_folder(plain_model(learner.policy), self.codec.tokenizer, training.folders.result, complete)
        else:
            save_whole(learner.policy, self._load_start, self.codec.tokenizer, training.folders.result, ranks, complete)

    def _with_whole_reference(self) -> Learner:
        """Return the learner; if its source exports a reference that is split over the ranks, with the whole one."""
        learner = self.learner
        if learner.ranks.count == 1 or learner.reference is None or not self.training.slots.rollouts.exports:
            return learner
        return replace(learner, reference=whole_model(learner.reference, self._load_start, learner.ranks))

    def _load_start(self) -> PreTrainedModel:
        return load_causal_model(
            self.training.start, torch.float32, trust_remote_code=self.training.policy.trust_remote_code
        )


@contextmanager
def open_training(training: Training, ranks: Ranks, open_engine: OpenEngine) -> Iterator[OpenTraining]:
    """Open the models of a training: learner, teachers, engine, reward model and judge. They are closed at the end.

    Args:
        training: the same on all ranks.
        ranks: this process among them; `models.base.ranks.ALONE` for a single one.
        open_engine: called on the first rank, if the rollouts draw.

    Raises:
        UserError: a folder holds no model, or a model of another kind.
    """
    trusted, slots, schedule = training.policy.trust_remote_code, training.slots, training.schedule
    policy = load_causal_model(training.start, torch.float32, trust_remote_code=trusted)
    if ranks.count == 1:  # else the rank's device holds only its parts
        policy = on_device(policy)
    tokenizer = open_tokenizer(training.start, trust_remote_code=trusted)
    codec = Codec(tokenizer, training.policy.chat, ends_of_folder(training.start), training.form)
    shape = ""

    def autocast_for(model: nn.Module) -> torch.dtype | None:
        nonlocal shape
        shape = shape_of(model)
        return ranks.from_first(lambda: training.autocast_for(model))

    learner = build_learner(policy, training, schedule, autocast_for, ranks, training.teachers)
    open_teachers(learner, tokenizer, training.teachers, training.served, trust_remote_code=trusted)
    problems = with_reference(
        training.problems,
        learner,
        slots.rollouts,
        slots.reference,
        schedule.token_budget,
        training.folders.reference_log_probs,
    )
    with (
        open_engine(learner.autocast) if slots.rollouts.draws and ranks.first else nullcontext() as own,
        opened_judge(
            training.judge if ranks.first else None, training.teachers.get("judge"), training.start, training.seed
        ) as judge,
    ):
        scorer = None
        if ranks.first and training.reward_model is not None:
            assert training.score_budget is not None, "a reward model was fitted"
            scorer = open_scorer(
                training.reward_model,
                codec,
                token_budget=training.score_budget,
                autocast_for=training.autocast_for,
                trust_remote_code=trusted,
            )
        several = slots.rollouts.draws and ranks.count > 1
        engine = FirstRankEngine(own, ranks.separate_group()) if several else own
        unread = Readings(learner, schedule.token_budget)
        yield OpenTraining(
            training,
            RunResources(
                codec, engine, scorer, training.seed, learner, unread, training.truncated, training.start, judge
            ),
            problems,
            shape,
        )


def train(training: Training, ranks: Ranks, open_engine: OpenEngine, watchers: Watchers) -> Collapse | None:
    """Run the loop to its end, with the other ranks if there are several, and write the policy.

    Args:
        training: the same on all of them.
        ranks: this process among them.
        open_engine: called on the first rank, if the rollouts draw.
        watchers: called by the first rank.

    Returns:
        The policy's collapse, if there was one.

    Raises:
        UserError: see `models.training.loop.run_loop`; on every rank alike.
    """
    with open_training(training, ranks, open_engine) as opened:
        if ranks.first:
            watchers.opened(opened.precision, opened.shape)
        collapse = opened.run(watchers)
    opened.save()
    return collapse
