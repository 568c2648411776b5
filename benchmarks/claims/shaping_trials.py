"""Claims about shaping a reward model's score before a policy learns from it, each compared with a run without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.claims.pair_reward_model import fit_to_pairs
from benchmarks.claims.toy import Arm, Toy, held_out, open_reward_model, recipe_of, train
from models.reward_models.read_pairs import read_pairs
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer

Measure = Callable[[Toy, int], tuple[float, dict[str, float]]]
ROUNDS = 24
FITTED = ("reward_model.fit.epochs=8", "rollouts.prompts=32", "rollouts.max_tokens=24")
CENTRED = Arm("par", FITTED)
RAW_SCORE = Arm("par", (*FITTED, "rewards.1={name: reward_model, squash: none}"))
"""The score itself instead of the chance to beat the reference."""
HELD = (*FITTED, "rewards.3.every=0", "rewards.3.thresholds=[0.8, -0.75]", "rewards.3.rate=0.5")
CONSTRAINED = Arm("constrained_rlhf", HELD)
WEIGHTED = Arm("constrained_rlhf", (*HELD, "rewards.3.rate=0.0"))
"""The multipliers keep their first values, so that the reward is a weighted sum."""


def by_one_reward_model(arm: Arm, other: Arm, rounds: int = ROUNDS) -> Measure:
    """Return a measure of the lead of an arm over the other in right answers to held-out problems, both trained on the
    scores of one reward model, which was fitted to the toy's preferences."""

    def measure(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
        reached: list[float] = []
        numbers: dict[str, float] = {}
        with TemporaryDirectory() as place:
            recipe = recipe_of(arm, seed, rounds)
            pairs, _ = read_pairs(toy.data, Codec(load_tokenizer(toy.start(seed))), "train", 64)
            fitted = Path(place) / "reward_model"
            fit_to_pairs(toy.start(seed), recipe, pairs, fitted)
            score = open_reward_model(toy, recipe, fitted)
            for name, each in (("arm", arm), ("other", other)):
                trained = train(toy, each, seed, rounds, fitted)
                truth = trained.curve("reward/exact_answer")
                judged = held_out(toy, trained, ["sampled_accuracy", "reward_score", "tokens"], 8, score)
                reached.append(judged["sampled_accuracy"])
                numbers |= {f"{name}, {metric}": value for metric, value in judged.items()}
                numbers[f"{name}, best five rounds"] = max(fmean(truth[at : at + 5]) for at in range(len(truth) - 4))
        return reached[0] - reached[1], numbers

    return measure
