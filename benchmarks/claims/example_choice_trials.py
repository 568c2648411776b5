"""The claim of PromptPG: chosen worked examples help a frozen solver more than random ones, whose accuracy varies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.claims.toy import FEW, SIZE, WARM_START, Arm, ArmResult, Toy, make_toy, recipe_of, train
from models.agents.environments.solver import Solver
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.learner.supervised import fit_supervised
from models.policies.build import new_policy
from models.policies.fitted_tokenizer import fitted_tokenizer
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings
from models.training.read_demonstrations import demonstrations
from models.training.read_problems import PromptSections, read_problems

ROUNDS, WARM_STEPS, DRAWS = 40, 1000, 8
POSITIONS = 192
NUMBERS = {"start": [1, 20], "operand": [1, 9], "value": [-20, 60]}
"""Ranges of the main data, which the pool of worked examples was drawn from."""
ARM = Arm(
    "promptpg",
    (f"policy.size.positions={POSITIONS}", "rollouts.max_tokens=128", "rollouts.prompts=32", "evaluation.problems=100"),
)


@dataclass(frozen=True)
class SolverToy(Toy):
    """Data, and warm starts that are solver and policy at once, one for each seed."""

    def start(self, seed: int) -> Path:
        """Return the warm-started model of a seed, made on first use."""
        place = self.folder / f"start_{seed}"
        if not place.is_dir():
            tokenizer = fitted_tokenizer(self.data, TokenizerSettings(kind="words", vocabulary=512))
            model = new_policy(replace(SIZE, positions=POSITIONS), tokenizer, seed)
            teaches = recipe_of(ARM, seed, ROUNDS).rollouts.teaches
            shown = demonstrations(self.data, Codec(tokenizer), "train", POSITIONS, role="user", teaches=teaches)
            fit_supervised(model, shown, replace(WARM_START, steps=WARM_STEPS), seed=seed)
            save_model_folder(model, tokenizer, place)
        return place


def gain_of_choice(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the accuracy with chosen examples less the mean of that with random ones; also the spread of the latter.

    The spread is the standard deviation over draws of two examples, each the same for all problems.
    """
    folder = toy.folder / "worked_examples"
    if not folder.is_dir():
        make_toy(folder, {**FEW, **NUMBERS})
    own = SolverToy(folder)
    trained = train(own, ARM, seed, ROUNDS)
    chosen = statistics.fmean(accuracies(own, trained, {}))
    draws = [statistics.fmean(accuracies(own, trained, {"draw": draw})) for draw in range(DRAWS)]
    spread = statistics.stdev(draws)
    values = {"chosen": chosen, "random": statistics.fmean(draws), "spread": spread, "best draw": max(draws)}
    return chosen - values["random"], values


def accuracies(toy: Toy, trained: ArmResult, random: dict[str, int]) -> Sequence[float]:
    """Return the solver's accuracy on each held-out problem, [problems].

    Args:
        toy: data and warm starts; the warm start is the solver.
        trained: chooses the examples.
        random: `draw`, the seed of examples that all problems share; empty: the policy chooses.
    """
    episodes = trained.recipe.rollouts.episodes
    assert episodes is not None and isinstance(episodes.environment, Solver)
    if random:
        episodes = replace(episodes, environment=replace(episodes.environment, prepared="random", draw=random["draw"]))
    start = toy.start(trained.recipe.seed)
    problems = read_problems(toy.data, trained.codec, "validation", PromptSections(trained.recipe))
    engine = TransformersEngine(start, EngineSettings(), end=trained.codec.end)
    engine.load(merged_weights(trained.learner.policy))
    sampling = Sampling(max_tokens=trained.recipe.rollouts.max_tokens, samples=4)
    records = evaluate(
        engine, trained.codec, problems, sampling, trained.recipe.seed, None, episodes=episodes, policy_folder=start
    )
    return [float(value) for value in prompt_values(records, "sampled_accuracy")]
