"""Claims about rewards of steps: their effect on a policy, and the quality of the labels behind them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.claims.toy import Arm, Toy, answers, open_reward_model, recipe_of, train
from benchmarks.claims.toy_reward_model import fit_to_steps, label
from models.recipes.schema import Recipe
from models.reward_models.fit_process import sequences_of_solutions
from models.reward_models.scorer import StepScorer
from models.reward_models.solutions import Solution, known_labels
from models.reward_models.step_accuracy import first_errors, step_accuracy

FITTED = (
    "reward_model.process.problems=200", "reward_model.process.samples=4", "reward_model.fit.steps=150",
    "reward_model.process.held_out=192",
)  # fmt: skip
STEPS = (
    *FITTED, "rollouts.prompts=32", "rollouts.max_tokens=44", "select=[{name: all}]",
    "advantage={name: group_relative}", "schedule.optimiser.learning_rate=0.001",
)  # fmt: skip
"""Room for three times the steps of a solution, and advantages from the reward of a whole completion."""
SHAPED = Arm("clip_delta", STEPS)
RAW = Arm("clip_delta", (*STEPS, "rewards.1.clip=null", "rewards.1.delta=false"))
ROUNDS = 20


def repetition(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the difference of the share of repeated steps after training on raw values of steps and on values with
    Clip and Delta, by one process reward model for both."""
    numbers: dict[str, float] = {}
    with TemporaryDirectory() as place:
        recipe = recipe_of(SHAPED, seed, ROUNDS)
        fitted = fit_to_steps(toy, recipe, label(toy, recipe), Path(place) / "reward_model")
        for name, arm in (("raw", RAW), ("clip and delta", SHAPED)):
            records = answers(toy, train(toy, arm, seed, ROUNDS, fitted), 8)
            completions = [steps_of(sample.text) for record in records for sample in record.samples]
            numbers |= {
                f"{name}, repeated": statistics.fmean(map(repeated, completions)),
                f"{name}, steps": statistics.fmean(map(len, completions)),
                f"{name}, right": statistics.fmean(s.correct for record in records for s in record.samples),
                f"{name}, cut": statistics.fmean(not s.finished for record in records for s in record.samples),
            }
    return numbers["raw, repeated"] - numbers["clip and delta, repeated"], numbers


def steps_of(text: str) -> list[str]:
    """Return the steps of a completion as the reward counts them: a mark alone is one, blanks are none."""
    return [step for piece in re.findall("[^;]*;|[^;]+", text) if (step := piece.strip())]


def repeated(steps: Sequence[str]) -> float:
    """Return the share of the steps that occurred before in the same completion; 0 without steps."""
    return 1.0 - len(set(steps)) / len(steps) if steps else 0.0


CONSENSUS = Arm("prm_consensus", FITTED)
MONTE_CARLO = Arm(
    "prm_consensus", (*FITTED, "reward_model.process.labels={name: monte_carlo, continuations: 8, kind: hard}")
)
TRUE = Arm(
    "prm_consensus",
    (*FITTED, "reward_model.process.samples=16", "reward_model.process.labels={name: reference}"),
)
"""Labels that values are compared with: whether a step agrees with a sound solution, without any noise. The toy has one
for fifty held-out problems; the others have no label and do not count."""


def better_labels(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much better the first wrong step of held-out solutions is found by a process reward model fitted to
    consensus labels than by one fitted to hard Monte-Carlo labels of the same solutions, in as many updates."""
    held_out = label(toy, recipe_of(TRUE, seed, 1), "validation")
    true_labels = [solution.labels for solution in held_out]
    numbers: dict[str, float] = {}
    for name, arm in (("consensus", CONSENSUS), ("Monte Carlo", MONTE_CARLO)):
        recipe = recipe_of(arm, seed, 1)
        solutions = label(toy, recipe)
        values = values_of(toy, recipe, solutions, held_out)
        numbers |= {
            name: first_errors(values, true_labels).f1,
            f"{name}, order of steps": step_accuracy(values, true_labels),
            f"{name}, steps with a label": float(sum(int(known_labels(solution).sum()) for solution in solutions)),
        }
    return numbers["consensus"] - numbers["Monte Carlo"], numbers


def values_of(
    toy: Toy, recipe: Recipe, solutions: Sequence[Solution], held_out: Sequence[Solution]
) -> list[list[float]]:
    """Compute values of `held_out`'s steps by a process reward model fitted to `solutions`, [held_out] of [steps]."""
    with TemporaryDirectory() as place:
        fitted = fit_to_steps(toy, recipe, solutions, Path(place) / "reward_model")
        scorer = open_reward_model(toy, recipe, fitted)
    assert isinstance(scorer, StepScorer)
    _, values = scorer.steps(sequences_of_solutions(held_out))
    return [row.tolist() for row in values]
