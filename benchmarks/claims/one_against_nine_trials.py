"""A claim about measures of reward models (RewardMATH, paper 330): one right against nine wrong foresees the outcome.

Five reward models learn from the same pairs, with rising shares of them turned round. Each is measured in two ways: the
share of held-out pairs that it orders rightly, as in RewardBench, and the share of samples in which a right one is
above nine wrong ones of its prompt. The outcome is the truth of the policy that is trained on its score alone. The
effect is by how much the rank correlation with the outcome, over the five, is higher for the second measure.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.claims.pair_reward_model import fit_to_pairs
from benchmarks.claims.toy import Arm, Toy, answers, held_out, open_reward_model, recipe_of, train
from models.reward_models.ranking import spearman
from models.reward_models.read_pairs import read_pairs
from models.reward_models.trust import PolicyReport, policy_report
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer

FLIPS = (0.0, 0.1, 0.2, 0.3, 0.4)
"""Shares of pairs that are turned round, a reward model each."""
ROUNDS, SAMPLES = 12, 16
ALONE = Arm("grpo", ("rollouts.prompts=32", "rewards=[{name: reward_model}]", "select=[{name: drop_flat, by: total}]"))
STILL = Arm("grpo", (*ALONE.overrides, "rewards=[{name: exact_answer}]", "schedule.optimiser.learning_rate=0.0000001"))
"""The policy as it was before the training: its steps are too small to change an answer."""
METRIC = "sampled_accuracy"
MEASURES = ("pairs", "one against nine", "reciprocal rank", "best of 16")


def outcome_correlation(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the lead in rank correlation with the outcome of RL, of one against nine over the accuracy on pairs."""
    start = toy.start(seed)
    codec = Codec(load_tokenizer(start))
    pairs, judged = (read_pairs(toy.data, codec, split, 64)[0] for split in ("train", "validation"))
    recipe, still = recipe_of(ALONE, seed, ROUNDS), train(toy, STILL, seed, 1)
    measured: dict[str, list[float]] = {name: [] for name in (*MEASURES, "outcome")}
    for share in FLIPS:
        chance = Random(seed)
        turned = [pair.turned() if chance.random() < share else pair for pair in pairs]
        with TemporaryDirectory() as place:
            fitted = Path(place) / "reward_model"
            accuracy = fit_to_pairs(start, recipe, turned, fitted, judged)
            records = answers(toy, still, SAMPLES, open_reward_model(toy, recipe, fitted))
            outcome = held_out(toy, train(toy, ALONE, seed, ROUNDS, fitted), [METRIC])[METRIC]
        numbers = (accuracy or 0.0, *_of(policy_report(records)), outcome)
        for name, number in zip(measured, numbers, strict=True):
            measured[name].append(number)
    correlations = {name: spearman(measured[name], measured["outcome"]) for name in MEASURES}
    shown = {f"{name}, correlation": value for name, value in correlations.items()}
    shown |= {f"outcome at {share:g} turned": value for share, value in zip(FLIPS, measured["outcome"], strict=True)}
    return correlations["one against nine"] - correlations["pairs"], shown


def _of(report: PolicyReport) -> tuple[float, float, float]:
    assert report.one_against is not None and report.reciprocal_rank is not None, "the policy is right too often"
    return report.one_against.estimate, report.reciprocal_rank.estimate, report.best_of[SAMPLES].estimate
