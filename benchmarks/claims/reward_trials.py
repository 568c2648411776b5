"""Claims about reward models: their choice among the samples of a policy that none of them was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor

from benchmarks.claims.toy import Toy
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.recipes.load import load_recipe
from models.reward_models.ensemble import combine
from models.reward_models.fit import Pair, RewardModelSettings, fit_reward_model
from models.reward_models.model import reward_model_from_policy
from models.reward_models.ranking import best_of_n
from models.reward_models.read_pairs import read_pairs
from models.reward_models.scoring import score_all
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import PromptSections, read_problems

FIT = RewardModelSettings(
    epochs=8, batch_pairs=64, centring=0.01, optimiser=OptimiserSettings(learning_rate=5e-4, decay="cosine")
)
MEMBERS, SAMPLES, FLIPPED = 4, 16, 0.25
PENALTY = 0.5
"""Weight of the variance over the members, as in the paper for the best of n."""


def ensembles_under_flips(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much more often the best of 16 is right by the worst case of four reward models than by one of them,
    fitted with a quarter of the labels flipped."""
    start = toy.start(seed)
    codec = Codec(load_tokenizer(start))
    pairs = _flipped(read_pairs(toy.data, codec, "train", 64)[0], seed)
    sequences, right = _samples(toy, codec, seed)
    scores = torch.stack([_scores(start, pairs, sequences, MEMBERS * seed + number) for number in range(MEMBERS)])
    chosen = {
        "worst case": _right_of_best(combine(scores, "worst"), right),
        "uncertainty-weighted": _right_of_best(combine(scores, "uncertainty", PENALTY), right),
        "mean": _right_of_best(combine(scores, "mean"), right),
        "a member": float(np.mean([_right_of_best(own, right) for own in scores])),
        "a sample": float(right.mean()),
    }
    return chosen["worst case"] - chosen["a member"], chosen


def _flipped(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Return the pairs, a quarter of them the wrong way round."""
    chance = Random(seed)
    return [pair.turned() if chance.random() < FLIPPED else pair for pair in pairs]


def _samples(toy: Toy, codec: Codec, seed: int) -> tuple[Sequences, Tensor]:
    """Draw samples of the warm-started policy to held-out problems, and which are right, [problems, SAMPLES]."""
    recipe = load_recipe("arithmetic_long", ["evaluation.problems=150", "policy.size.positions=64", f"seed={seed}"])
    problems = read_problems(toy.data, codec, "validation", PromptSections(recipe), 150)
    engine = TransformersEngine(toy.start(seed), EngineSettings(), end=codec.end)
    records = evaluate(engine, codec, problems, Sampling(max_tokens=24, samples=SAMPLES), seed, None)
    texts = [sample.text for record in records for sample in record.samples]
    prompts = [problem.tokens for problem in problems for _ in range(SAMPLES)]
    right = torch.tensor([[float(sample.correct) for sample in record.samples] for record in records])
    return Sequences(prompts, codec.completions(texts)), right


def _scores(start: Path, pairs: list[Pair], sequences: Sequences, seed: int) -> Tensor:
    """Score the samples by a reward model with its own seed, less the mean, [completions]."""
    model = reward_model_from_policy(start, seed=seed)
    fit_reward_model(model, pairs, FIT, seed=seed)
    scores = score_all(model, sequences)
    return scores - scores.mean()


def _right_of_best(scores: Tensor, right: Tensor) -> float:
    """Return the share of problems of which the sample of highest score is right."""
    return float(best_of_n(scores.view_as(right).numpy(), right.numpy(), right.shape[1]).mean())
