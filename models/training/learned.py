"""Check whether a run changed the policy, from the rounds' metrics and the weights before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

GRADIENT, RATE, CHOSEN, SPREAD = (
    "policy/gradient_norm",
    "policy/learning_rate",
    "rollouts/trained_share",
    "reward/spread",
)


def nothing_learned(rounds: Sequence[Mapping[str, float]], changed_share: float) -> str:
    """Return why the training did not change the policy, in one sentence; empty if it did.

    It learned if weights differ and some round had a gradient: weight decay alone moves weights too, and a gradient may
    be too small for the precision in which the weights are kept.

    Args:
        rounds: metrics of every round.
        changed_share: share of the weights that differ from those that the run began with, 0 to 1.
    """
    with_gradient = sum(metrics.get(GRADIENT, 0.0) > 0 for metrics in rounds)
    if changed_share > 0 and with_gradient:
        return ""
    count = len(rounds)
    causes = {
        "no completion was left to learn from": sum(metrics.get(CHOSEN, 0.0) == 0 for metrics in rounds),
        "all rewards were equal": sum(metrics.get(SPREAD, 1.0) == 0 for metrics in rounds),
        "the learning rate was 0": sum(metrics.get(RATE, 1.0) == 0 for metrics in rounds),
    }
    seen = [f"{cause} in {times} of them" for cause, times in causes.items() if times]
    if with_gradient:
        seen.append(f"gradients of {with_gradient} of them were too small to change a stored weight")
    return f"no round changed the weights: of {count} rounds, {'; '.join(seen) or 'none had a gradient'}"
