"""A claim about judging problems harder than the labelled ones (easy-to-hard generalisation, paper 282).

Two reward models read the same solutions of the warm-started policy to easy problems of one and two operations, in as
many updates from the same beginning. One learns the value of every step, by continuations; the other only the value of
the last step, which is whether the solution is right: an outcome reward model. Both then choose among 16 samples of
held-out problems of three operations, of which neither has seen a label; the first by the least of its steps, the other
by the last, as each was fitted. The measure is the share of right choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.claims.toy import FEW, Toy, make_toy
from models.answers.exact import by_answer
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.optimiser import OptimiserSettings
from models.method.problem import Problem
from models.method.steps import MARKS
from models.parts.labels.monte_carlo import MonteCarlo
from models.recipes.load import load_recipe
from models.reward_models.fit import RewardModelSettings
from models.reward_models.fit_process import fit_process_model, sequences_of_solutions
from models.reward_models.model import reward_model_from_policy
from models.reward_models.process import Aggregation, aggregated, step_values
from models.reward_models.ranking import best_of_n
from models.reward_models.solutions import LabellingTools, Solution
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import PromptSections, read_problems

EASY, HARD = 2, 3
"""Highest level that is labelled, and the level that is judged."""
PROBLEMS, SOLUTIONS, CONTINUATIONS = 150, 4, 4
HELD_OUT, SAMPLES, LONGEST = 100, 16, 32
FIT = RewardModelSettings(epochs=6, batch_pairs=32, optimiser=OptimiserSettings(learning_rate=5e-4, decay="cosine"))
LEVELS: dict[str, Any] = {
    "start": [1, 20],
    "problems": {"train": [44, 460, 400], "validation": [22, 80, 120], "gate": [3, 5, 5]},
}
"""The toy's data with one more level."""


def easy_to_hard(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the lead, in right choices of the best of 16 on hard problems, of steps over outcomes, both learned on
    easy problems."""
    levels = _levels(toy)
    start = levels.start(seed)
    codec = Codec(load_tokenizer(start))
    recipe = PromptSections(load_recipe("arithmetic", ["policy.size.positions=64", f"rollouts.max_tokens={LONGEST}"]))
    engine = TransformersEngine(start, EngineSettings(), end=codec.end)

    def bench(samples: int) -> LabellingTools:
        sampling = Sampling(max_tokens=LONGEST, samples=samples, log_probs=False)
        return LabellingTools(engine, codec, by_answer, sampling, MARKS, seed, {})

    easy = read_problems(levels.data, codec, "train", recipe, PROBLEMS, EASY)
    labelled = MonteCarlo(continuations=CONTINUATIONS)(bench(SOLUTIONS), easy)
    hard = [each for each in read_problems(levels.data, codec, "validation", recipe) if each.level == HARD][:HELD_OUT]
    samples = bench(SAMPLES).solutions(hard)
    by_steps = _right(_chosen(levels, labelled, samples, seed, "min"), samples, hard)
    by_outcome = _right(_chosen(levels, [outcome(each) for each in labelled], samples, seed, "last"), samples, hard)
    chance = float(np.mean([each.right for each in samples]))
    return by_steps - by_outcome, {"by steps": by_steps, "by outcomes": by_outcome, "a sample": chance}


def outcome(solution: Solution) -> Solution:
    """Return the solution with only one label: whether it is right, at its last step."""
    return replace(solution, labels=(*[math.nan] * (len(solution.ends) - 1), float(solution.right)))


def _levels(toy: Toy) -> Toy:
    """Return the toy's policy on its data plus one more level."""
    made = Toy(toy.folder / "levels")
    return made if made.data.is_dir() else make_toy(made.folder, FEW | LEVELS)


def _chosen(
    levels: Toy, labelled: Sequence[Solution], samples: Sequence[Solution], seed: int, rule: Aggregation
) -> list[float]:
    """Score each sample by a process reward model that is fitted to labelled solutions, [samples]."""
    model = reward_model_from_policy(levels.start(seed), seed=seed)
    fit_process_model(model, labelled, FIT, seed=seed)
    values = step_values(model, sequences_of_solutions(samples), [each.ends for each in samples])
    return [float(aggregated(row, rule)) for row in values]


def _right(scores: Sequence[float], samples: Sequence[Solution], problems: Sequence[Problem]) -> float:
    """Return the share of problems of which the sample of highest score is right."""
    right = []
    for problem in problems:
        own = [place for place, each in enumerate(samples) if each.problem.id == problem.id]
        of_problem = torch.tensor([[float(samples[place].right) for place in own]])
        scored = torch.tensor([[scores[place] for place in own]])
        right.append(float(best_of_n(scored.numpy(), of_problem.numpy(), len(own)).mean()))
    return float(np.mean(right))
