"""A claim about people who disagree: the value of a policy for the group that it serves worst (MaxMin-RLHF, paper 368).

Postcards that a quarter of the people want short and the others full of lovely things (models/task_sets/
tastes.py). Both arms train by the recipe `maxmin` from the same warm start, on the same pairs, and differ only in the
number of groups of annotators with their own reward model, two or one. The groups are never given. The measure does not
use a reward model: it is how often people of a group prefer a postcard of the trained policy to one of the policy as it
began, ties half, which is their win rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.claims.toy import PARAMS, Arm, Toy, train
from models.datasets.params import checked, read_section
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout, written_sequences
from models.method.truncation import worst_where_cut
from models.policies.weights import merged_weights
from models.reward_models.annotators import GroupSettings, grouped_pairs
from models.reward_models.ensemble import Ensemble, levels_of
from models.reward_models.fit import Pair, RewardModelSettings, fit_reward_model, score_pairs
from models.reward_models.model import reward_model_from_policy
from models.reward_models.read_pairs import read_pairs
from models.reward_models.scoring import score_all
from models.task_sets import make_tasks
from models.task_sets.tastes import loveliness, shortness
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import PromptSections, read_problems

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TASTES = "tastes"
GROUPS = GroupSettings(count=2, rounds=1)
PAIRS = 1500
"""Number of pairs, three of each annotator."""
FIT = RewardModelSettings(
    epochs=3, batch_pairs=64, centring=0.01, optimiser=OptimiserSettings(learning_rate=1e-3, decay="cosine")
)
MAXMIN = ("rollouts.prompts=16", "data.name=tastes")
ROUNDS, SAMPLES = 24, 4
LIKED: dict[str, Callable[[str], int]] = {"majority": loveliness, "minority": shortness}


@dataclass(frozen=True, kw_only=True)
class WorstGroupReward(Reward):
    """Reward by the judgement of the group that is served worst, of as many groups as there are models."""

    name = "reward_model"
    models: tuple[PreTrainedModel, ...]
    ensemble: Ensemble

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Compute the scores, [completions]."""
        made = written_sequences(rollouts)
        alike = Sequences(made.prompts, resources.codec.ended_alike(made.completions))
        scores = torch.stack([score_all(model, alike) for model in self.models])
        return worst_where_cut(self.ensemble.read(scores), rollouts)


def worst_served(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure by how much a reward model for each group raises the lower win rate, compared with one model for all."""
    tastes = _tastes(toy)
    start = tastes.start(seed)
    codec = Codec(load_tokenizer(start))
    pairs = read_pairs(tastes.data, codec, "train", 64)[0][:PAIRS]

    def margins(parts: Sequence[Sequence[Pair]], first: int) -> Tensor:
        fitted = [_fitted(start, part, GROUPS.count * seed + place) for place, part in enumerate(parts)]
        return torch.stack([chosen - rejected for chosen, rejected in (score_pairs(each, pairs) for each in fitted)])

    groups = grouped_pairs(pairs, GROUPS, margins)[0]
    rates: dict[str, float] = {}
    for name, parts in (("max-min", groups), ("one model", [pairs])):
        for people, rate in _win_rates(tastes, seed, _served(tastes, codec, parts, seed)).items():
            rates[f"{name}, {people}"] = rate
    lowest = {name: min(rates[f"{name}, {people}"] for people in LIKED) for name in ("max-min", "one model")}
    return lowest["max-min"] - lowest["one model"], rates


def _tastes(toy: Toy) -> Toy:
    """Return the toy's policy on the data of two tastes."""
    made = Toy(toy.folder / TASTES)
    if not made.data.is_dir():
        settings = checked(make_tasks.settings_type(TASTES), read_section(PARAMS, TASTES), str(PARAMS))
        make_tasks.write(settings, made.folder / "raw")
        prepare(DataSettings(name=TASTES, path=(made.folder / "raw",), format="kinds"), made.data)
    return made


def _fitted(start: Path, pairs: Sequence[Pair], seed: int) -> PreTrainedModel:
    model = reward_model_from_policy(start, seed=seed)
    fit_reward_model(model, pairs, FIT, seed=seed)
    return model


def _served(tastes: Toy, codec: Codec, parts: Sequence[Sequence[Pair]], seed: int) -> WorstGroupReward:
    """Make a reward of a model for each part of the pairs, read as in the recipe."""
    start = tastes.start(seed)
    models = tuple(_fitted(start, part, GROUPS.count * seed + place) for place, part in enumerate(parts))
    held_out = read_pairs(tastes.data, codec, "validation", 64)[0]
    levels = levels_of([score_pairs(model, held_out) for model in models])
    return WorstGroupReward(models=models, ensemble=Ensemble("worst_group", 0.0, levels))


def _win_rates(tastes: Toy, seed: int, reward: WorstGroupReward) -> dict[str, float]:
    """Measure how often people of each group prefer the texts of a policy trained on a reward, by group."""
    trained = train(tastes, Arm("maxmin", MAXMIN, (reward,)), seed, ROUNDS)
    engine = TransformersEngine(tastes.start(seed), EngineSettings(), end=trained.codec.end)
    problems = read_problems(tastes.data, trained.codec, "validation", PromptSections(trained.recipe))
    sampling = Sampling(max_tokens=24, samples=SAMPLES)
    before = evaluate(engine, trained.codec, problems, sampling, seed, None)
    engine.load(merged_weights(trained.learner.policy))
    after = evaluate(engine, trained.codec, problems, sampling, seed, None)
    pairs = [
        (new.text, old.text)
        for now, then in zip(after, before, strict=True)
        for new, old in zip(now.samples, then.samples, strict=True)
    ]
    return {people: _win_rate(pairs, worth) for people, worth in LIKED.items()}


def _win_rate(pairs: Sequence[tuple[str, str]], worth: Callable[[str], int]) -> float:
    """Return the share of pairs whose first text is liked more, ties half."""
    won = [(worth(first) > worth(second)) + 0.5 * (worth(first) == worth(second)) for first, second in pairs]
    return sum(won) / len(won)
