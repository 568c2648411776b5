"""Claims about exploration: branches at uncertain tokens (CURE), and a reward for steps (RLSP)."""

from __future__ import annotations

import statistics

from benchmarks.claims.toy import Arm, Toy, held_out, train

ROUNDS = 40
PROMPTS = "rollouts.prompts=32"
VERIFIER = "rewards=[{name: exact_answer}]"
BRANCHED = Arm("cure", ("rollouts.prompts=16", "rollouts.group_size=16", VERIFIER))
PLAIN = Arm("dapo", ("rollouts.prompts=16", "rollouts.group_size=16", VERIFIER))
"""DAPO with as many completions of as many prompts; its samples all begin at the prompt."""
BOTH = Arm("rlsp", (PROMPTS, "advantage.critic.pretraining=0"))
STEPS_ALONE = Arm("rlsp", (*BOTH.overrides, "rewards=[{name: steps, most: 8}]"))
RIGHT_ALONE = Arm("rlsp", (*BOTH.overrides, VERIFIER))
STILL = Arm("rlsp", (*BOTH.overrides, "schedule.optimiser.learning_rate=0.0000001"))
"""The policy as it was before the training: its steps are too small to change an answer."""
METRIC = "sampled_accuracy"


def entropy_of_branches(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much more entropy the policy keeps in the last quarter of the rounds with branches than without."""
    runs = {arm.recipe: train(toy, arm, seed, ROUNDS) for arm in (BRANCHED, PLAIN)}
    kept = {name: statistics.fmean(run.curve("policy/entropy")[-ROUNDS // 4 :]) for name, run in runs.items()}
    reached = {f"{name}, accuracy": held_out(toy, run, [METRIC])[METRIC] for name, run in runs.items()}
    return kept["cure"] - kept["dapo"], kept | reached


def accuracy_by_steps_alone(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the change of accuracy by a training whose only reward is the number of steps."""
    after = held_out(toy, train(toy, STEPS_ALONE, seed, ROUNDS), [METRIC])[METRIC]
    before = held_out(toy, train(toy, STILL, seed, 1), [METRIC])[METRIC]
    return after - before, {"steps alone": after, "before": before}


def accuracy_by_steps_and_verifier(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much more accurate the policy becomes with a reward for steps next to the verifier."""
    both, right = (held_out(toy, train(toy, arm, seed, ROUNDS), [METRIC])[METRIC] for arm in (BOTH, RIGHT_ALONE))
    return both - right, {"verifier and steps": both, "verifier alone": right}
