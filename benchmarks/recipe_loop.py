"""A recipe's loop on one machine, opened from a warm start with models/ alone: no orchestrator, no tracking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.warm_starts import Work
from models.base.device import on_device
from models.engines.engine import Engine
from models.engines.open_engine import open_engine
from models.method.alarm import AlarmSettings, Collapse
from models.method.learner import Learner
from models.method.method import Slots
from models.method.readings import Readings
from models.method.rollout import Problem
from models.method.slots import Reward
from models.method.teacher_roles import Role
from models.method.world import World
from models.policies.build import load_causal_model
from models.reward_models.judges.open_judge import opened_judge
from models.reward_models.scorer import open_scorer
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.tokenizer import load_tokenizer
from models.training.build import build_learner, open_teachers
from models.training.loop import Watchers, run_loop
from models.training.read_problems import PromptSections, longest_in_training, read_prompts, with_reference


@dataclass(frozen=True)
class Loop:
    """A training that is ready to run."""

    recipe: Any
    start: Path
    """The warm start's model folder."""
    codec: Codec
    learner: Learner
    engine: Engine | None
    """Engine; None: the recipe draws no completions."""
    problems: Sequence[Problem]
    slots: Slots
    scorer: Any
    """Scorer of the reward model; None: there is none."""
    frozen: Mapping[Role, Path]

    def run(self, checkpoints: Path, watchers: Watchers, alarm: AlarmSettings | None = None) -> Collapse | None:
        """Train the learner's policy in place, round after round; see `models.training.loop.run_loop`."""
        recipe = self.recipe
        unread = Readings(self.learner, recipe.schedule.token_budget)
        with opened_judge(recipe.judge, self.frozen.get("judge"), self.start, recipe.seed) as judge:
            world = World(
                self.codec, self.engine, self.scorer, recipe.seed, self.learner, unread, recipe.truncated, self.start,
                judge,
            )  # fmt: skip
            return run_loop(world, self.slots, recipe.schedule, self.problems, checkpoints, watchers, alarm)


def codec_of(recipe: Any, folder: Path) -> Codec:
    """Open the tokenizer of a model folder with the recipe's chat, template and system message."""
    form = PromptForm.of(recipe.policy.system, recipe.data.template)
    return Codec(load_tokenizer(folder), recipe.policy.chat, ends_of_folder(folder), form)


@contextmanager
def open_loop(
    work: Work,
    recipe: Any,
    start: Path,
    rewards: Sequence[Reward],
    frozen: Mapping[Role, Path] | None = None,
    reward_model: Path | None = None,
) -> Iterator[Loop]:
    """Open the parts that a recipe's rounds need; its engine is closed at the end.

    Args:
        work: the data, and the measured precisions.
        recipe: what is trained.
        start: the model folder that it begins with.
        rewards: instead of the recipe's own.
        frozen: folders of the models that it learns from, by role.
        reward_model: folder of a fitted one, which rewards may read.

    Raises:
        UserError: the data have no prompts that fit, or a folder holds no model.
    """
    codec, asked, frozen = codec_of(recipe, start), PromptSections(recipe), frozen or {}
    policy = on_device(load_causal_model(start, torch.float32))
    problems = read_prompts(work.data, codec, asked)
    learner = build_learner(policy, recipe, recipe.schedule, lambda model: work.autocast(recipe, model), frozen=frozen)
    open_teachers(learner, codec.tokenizer, frozen, trust_remote_code=recipe.policy.trust_remote_code)
    problems = with_reference(problems, learner, asked, work.folder)
    scorer = None
    if reward_model is not None:
        budget = recipe.reward_model.fit.token_budget
        scorer = open_scorer(
            reward_model, codec, token_budget=budget, autocast_for=lambda model: work.autocast(recipe, model)
        )
    slots = replace(recipe.slots, rewards=tuple(rewards))
    engine = None
    if recipe.rollouts.draws:
        longest, dtype = longest_in_training(problems, codec, asked), learner.autocast or torch.float32
        engine = open_engine(start, recipe.engine, longest=longest, end=codec.ends, seed=recipe.seed, dtype=dtype)
    try:
        yield Loop(recipe, start, codec, learner, engine, problems, slots, scorer, frozen)
    finally:
        if engine is not None:
            engine.close()
