"""Warnings after the first rounds of a training about settings under which a policy learns nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.method.alarm import CUT
from models.method.slots import Slots

FLAT = "rollouts/flat_share"
"""Metric: share of the prompts whose completions all have the same reward."""
TRAINED = "rollouts/trained_share"
"""Metric: share of the completions that the policy is trained on."""
ROUNDS = 2
"""Number of first rounds that are checked."""
MOST_CUT = 0.5
"""Share of completions cut at their limit above which a warning is given."""


def warnings_of(rounds: Sequence[Mapping[str, float]], slots: Slots) -> list[str]:
    """Return warnings about conditions in each of a run's first rounds, with the settings to change; one line each.

    Args:
        rounds: metrics of the first `ROUNDS` rounds.
        slots: parts of the loop.
    """
    if not slots.rollouts.draws:  # lengths and rewards of given completions are those of the data
        return []
    lines, limit = [], slots.rollouts.max_tokens
    if all(metrics.get(CUT, 0.0) > MOST_CUT for metrics in rounds):
        share = sum(metrics[CUT] for metrics in rounds) / len(rounds)
        lines.append(
            f"{share:.0%} of the completions of the first {len(rounds)} rounds were cut at their limit: "
            f"raise rollouts.max_tokens ({limit} now), or have the prompts ask for shorter answers"
        )
    flat = all(metrics.get(FLAT, 0.0) == 1.0 for metrics in rounds)
    unselected = all(metrics.get(TRAINED, 1.0) == 0.0 for metrics in rounds)
    if not slots.advantage.learns_from_flat_groups and (flat or unselected):
        rewards = " and ".join(f"{metrics['reward/total']:.3g}" for metrics in rounds)
        selectors = " and ".join(select.name for select in slots.select)
        why = (
            "all completions of a prompt have the same reward in every group"
            if flat
            else f"no completion was selected (select {selectors})"
        )
        lines.append(
            f"nothing can be learned from the first {len(rounds)} rounds: {why} (mean rewards {rewards}). If they are "
            "all wrong, take easier data, a warm start on demonstrations or a reward with partial credit; if they are "
            f"all right, harder data; if they are alike, raise rollouts.temperature{_temperature(slots)}"
        )
    return lines


def _temperature(slots: Slots) -> str:
    return f" ({slots.rollouts.sampling.temperature:g} now)"
