"""The engine of a training or an evaluation, and the scorer of its reward model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from models.agents.turn_scorer import ScorerSettings, TurnScorer
from models.base.sections import Sections, of
from models.engines.engine import Engine, EngineSettings
from models.method.problem import Problem
from models.policies.aspects import InUse
from models.reward_models.scorer import open_scorer
from models.reward_models.turn_scorers import open_turn_scorer
from models.text.encoding import Codec
from models.training.read_problems import PromptSections, longest_in_training
from tasks.compute.precision import Precision, learner_autocast
from tasks.compute.shared_engine import borrowed_engine
from tasks.registered.reward_model import RewardModelFiles


class EngineSections(PromptSections):
    """The sections of the recipe with which the engine of a training is opened."""

    engine: EngineSettings


class ScorerSections(Sections):
    """The sections of the recipe with which a reward model scores."""

    policy: InUse = of("used_policy")
    score_precision: Precision | None = of("scoring_precision")
    score_budget: int | None = of("reward_model.fit.token_budget")


def engine_for(
    folder: Path, recipe: EngineSections, codec: Codec, autocast: torch.dtype | None, problems: Sequence[Problem]
) -> AbstractContextManager[Engine]:
    """Open the recipe's engine on the weights of `folder`, in the learner's precision unless the recipe names another.

    It holds the longest sequence that the recipe's source draws for `problems`. On a GPU it takes its share
    (`engine.memory_share`) next to a learner that is there already, and keeps it for the evaluations after: these need
    the room of the engine and less than the learner leaves.
    """
    return borrowed_engine(
        folder,
        recipe.engine,
        longest=longest_in_training(problems, codec, recipe),
        end=codec.ends,
        dtype=autocast or torch.float32,
        trust_remote_code=recipe.policy.trust_remote_code,
    )


def reward_scorer(rewarded: RewardModelFiles | None, recipe: ScorerSections, home: Path, codec: Codec) -> Any:
    """Return a function that scores whole sequences with a reward model; None if there is none.

    The score is always read at the end token that the reward model was fitted with, whichever end token a completion
    has.
    """
    if rewarded is None:
        return None
    budget, precision = recipe.score_budget, recipe.score_precision
    assert budget is not None and precision is not None, "a reward model was fitted"
    trusted = recipe.policy.trust_remote_code
    return open_scorer(
        rewarded.folder,
        codec,
        token_budget=budget,
        autocast_for=lambda model: learner_autocast(precision, model, home, None),
        trust_remote_code=trusted,
    )


def turn_scorer_of(
    settings: ScorerSettings,
    rewarded: RewardModelFiles | None,
    recipe: ScorerSections,
    home: Path,
    codec: Codec,
    after_prompt: Sequence[int],
    seed: int,
) -> TurnScorer | None:
    """Open the scorer of a strategy's turns; None if it needs no model other than the policy.

    Args:
        settings: the strategy's.
        rewarded: reward model that the policy learned from; None: it learned from none.
        recipe: the evaluation settings.
        home: the state folder.
        codec: the policy's.
        after_prompt: ids that the policy needs between prompt and turn.
        seed: seed of the votes of a judge.

    Raises:
        UserError: see `open_turn_scorer`.
    """
    precision = recipe.score_precision
    return open_turn_scorer(
        settings,
        codec,
        rewarded.folder if rewarded is not None else None,
        seed=seed,
        after_prompt=after_prompt,
        token_budget=recipe.score_budget or 16384,
        autocast_for=lambda model: learner_autocast(precision, model, home, None) if precision is not None else None,
        trust_remote_code=recipe.policy.trust_remote_code,
    )
