"""Claims about preferences (paper 381): own completions and a negative gradient both help, on one budget.

Every arm reads or draws as many completions, in as many updates at the same rate, from the same warm start. The axes:

                               given pairs                     own completions
    raises good answers only   likelihood of the chosen        likelihood of the better of two; raft (best of eight)
    lowers bad answers too     dpo                             online_dpo; iterative_dpo (best and worst of eight); grpo

The arms of an effect differ in the objective alone, or in the source of the completions alone. The exact problem of
bins is `benchmarks.claims.bins`. An arm that two claims share is trained once a process.
"""

from __future__ import annotations

from functools import lru_cache

from benchmarks.claims.toy import Arm, Toy, held_out, train

ROUNDS = 40
METRIC = "sampled_accuracy"
RATE = ("schedule.optimiser={learning_rate: 0.0001, warmup_steps: 5}",)
PAIRS = ("rollouts.prompts=128", *RATE)
OWN_PAIRS = (*PAIRS, "rollouts.group_size=2", "rewards=[{name: exact_answer}]")
GROUPS = ("rollouts.prompts=32", "rollouts.group_size=8", "rewards=[{name: exact_answer}]", *RATE)
RAISES = (
    "objective={name: weighted_likelihood}",
    "select=[{name: drop_flat, by: total}, {name: best_of_n, best: 1, least: 1.0}]",
)
"""Of the pairs that DPO learns from, the better answer alone is learned from."""
GIVEN = Arm("dpo", PAIRS)
GIVEN_RAISED = Arm("dpo", (*PAIRS, *RAISES))
OWN = Arm("online_dpo", OWN_PAIRS)
OWN_RAISED = Arm("online_dpo", (*OWN_PAIRS, *RAISES))
ARMS = {
    "dpo": GIVEN,
    "likelihood of the chosen": GIVEN_RAISED,
    "online_dpo": OWN,
    "likelihood of the better": OWN_RAISED,
    "iterative_dpo": Arm("iterative_dpo", GROUPS),
    "raft": Arm("raft", GROUPS),
    "grpo": Arm("grpo", (*GROUPS, "objective.kl=0.0", "reference={name: none}")),
}


def own_completions(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the lead of own completions over given pairs, the mean of both objectives."""
    reached = {name: accuracy(toy, seed, name) for name in ARMS}
    own = reached["online_dpo"] + reached["likelihood of the better"]
    given = reached["dpo"] + reached["likelihood of the chosen"]
    return (own - given) / 2, reached


def negative_gradient(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the lead of losses that lower bad answers too, the mean of given pairs and own completions."""
    reached = {name: accuracy(toy, seed, name) for name in ARMS}
    lowering = reached["dpo"] + reached["online_dpo"]
    raising = reached["likelihood of the chosen"] + reached["likelihood of the better"]
    return (lowering - raising) / 2, reached


@lru_cache(maxsize=256)
def accuracy(toy: Toy, seed: int, name: str) -> float:
    """Return the held-out accuracy after training an arm."""
    return held_out(toy, train(toy, ARMS[name], seed, ROUNDS), [METRIC])[METRIC]
