"""A training as data: the inputs that each of several ranks opens, and the results that they make together.

It does not depend on how the processes were started or where the metrics are logged: the first rank reports to a
`Watchers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from models.base.ranks import Ranks
from models.engines.engine import Engine
from models.engines.first_rank import OfFirstRank
from models.learner.out_of_memory import NeedsLess
from models.learner.precision import Precision, autocast_of, chosen_precision
from models.method.alarm import AlarmSettings, Collapse
from models.method.method import Slots
from models.method.readings import Readings
from models.method.rollout import Problem
from models.method.schedule import ScheduleSettings
from models.method.slots import Advantage, Reference, Reward, Rollouts
from models.method.teacher_roles import Role
from models.method.truncation import TruncationSettings
from models.method.world import World
from models.policies.base_models.source import carry_source
from models.policies.build import PolicySettings, load_causal_model, open_tokenizer
from models.policies.save_whole import save_whole
from models.policies.teacher import TeacherSettings
from models.reward_models.judges.open_judge import opened_judge
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.scorer import open_scorer
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.training.build import build_learner, open_teachers
from models.training.known_log_probs import with_reference
from models.training.loop import Watchers, run_loop


@dataclass(frozen=True, kw_only=True)
class Training:
    """The inputs, settings and folders of a training. Its folders exist on every machine."""

    seed: int
    policy: PolicySettings
    slots: Slots
    schedule: ScheduleSettings
    truncated: TruncationSettings
    alarm: AlarmSettings | None
    start: Path
    """The model folder that the policy begins with."""
    problems: Sequence[Problem]
    form: PromptForm
    """Text that the recipe writes around every prompt."""
    teachers: Mapping[Role, Path]
    """Model folders that the policy is distilled from, and that of the judge."""
    served: TeacherSettings | None
    """The recipe's teacher, which may be at an address."""
    judge: JudgeSettings | None
    """The recipe's section `judge`; the first rank sends the requests for all."""
    reward_model: Path | None
    score_budget: int | None
    """Tokens of a packed row of the reward model; None without a reward model."""
    precisions: Path
    """Folder of the measurements of precisions, if the recipe leaves the precision open."""
    reference_log_probs: Path
    """Folder of log-probs under references that never move."""
    checkpoints: Path
    """Folder of the checkpoints, which all ranks write and see."""
    result: Path
    """The model folder that is written."""

    def with_less(self, less: NeedsLess) -> Training:
        """Return the same training with less memory."""
        schedule = replace(self.schedule, token_budget=less.budget, gradient_checkpointing=less.recompute or "auto")
        return replace(self, schedule=schedule)

    def autocast_for(self, model: nn.Module) -> torch.dtype | None:
        """Return the autocast dtype that `policy.precision` means for a model, None for plain float32; it is measured
        if the setting requests it."""
        return autocast_of(chosen_precision(self.policy.precision, model, self.precisions))

    @property
    def rollouts(self) -> Rollouts:
        """Source of the completions."""
        return self.slots.rollouts

    @property
    def rewards(self) -> Sequence[Reward]:
        """Rewards of the completions."""
        return self.slots.rewards

    @property
    def advantage(self) -> Advantage:
        """How much better than expected the completions are."""
        return self.slots.advantage

    @property
    def reference(self) -> Reference:
        """The model that the policy is compared with."""
        return self.slots.reference


@dataclass(frozen=True)
class TrainingResult:
    """The results of a training, in addition to the folder that was written."""

    precision: Precision
    collapse: Collapse | None


OpenEngine = Callable[[torch.dtype | None], AbstractContextManager[Engine]]
"""Opens the engine, given the learner's autocast dtype, None for plain float32."""


def train(training: Training, ranks: Ranks, open_engine: OpenEngine, watchers: Watchers) -> TrainingResult:
    """Run the loop to its end with the other ranks and write the policy to `training.result`.

    Args:
        training: the same on all of them.
        ranks: this process among them.
        open_engine: called on the first rank, if the rollouts draw.
        watchers: called by the first rank.

    Returns:
        The precision that it learned in, and the policy's collapse, if there was one.

    Raises:
        UserError: see `models.training.loop.run_loop`; on every rank alike.
    """
    trusted = training.policy.trust_remote_code
    tokenizer = open_tokenizer(training.start, trust_remote_code=trusted)
    codec = Codec(tokenizer, training.policy.chat, ends_of_folder(training.start), training.form)
    # On the CPU: the rank's device holds only its parts.
    policy = load_causal_model(training.start, torch.float32, trust_remote_code=trusted)
    learner = build_learner(
        policy,
        training,
        training.schedule,
        lambda model: ranks.from_first(lambda: training.autocast_for(model)),
        ranks,
        training.teachers,
    )
    open_teachers(learner, tokenizer, training.teachers, training.served, trust_remote_code=trusted)
    problems = with_reference(
        training.problems,
        learner,
        training.rollouts,
        training.reference,
        training.schedule.token_budget,
        training.reference_log_probs,
    )
    scorer = None
    if ranks.first and training.reward_model is not None:
        assert training.score_budget is not None
        scorer = open_scorer(
            training.reward_model,
            codec,
            token_budget=training.score_budget,
            autocast_for=training.autocast_for,
            trust_remote_code=trusted,
        )
    draws = training.rollouts.draws
    with (
        open_engine(learner.autocast) if draws and ranks.first else nullcontext() as own,
        opened_judge(
            training.judge if ranks.first else None, training.teachers.get("judge"), training.start, training.seed
        ) as judge,
    ):
        engine = OfFirstRank(own, ranks.apart()) if draws else None
        unread = Readings(learner, training.schedule.token_budget)
        world = World(codec, engine, scorer, training.seed, learner, unread, training.truncated, judge=judge)
        collapse = run_loop(
            world, training.slots, training.schedule, problems, training.checkpoints, watchers, training.alarm
        )
    save_whole(
        learner.policy,
        lambda: load_causal_model(training.start, torch.float32, trust_remote_code=trusted),
        tokenizer,
        training.result,
        ranks,
        lambda into: carry_source(training.start, into),
    )
    return TrainingResult("float32" if learner.autocast is None else "bfloat16", collapse)
