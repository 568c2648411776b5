"""The four main curves of a training, renamed so that MLflow's run page shows them first.

The page sorts its sections, and the charts of a section, by name; capitals come before small letters.
"""

from __future__ import annotations

from collections.abc import Mapping

_FIRST = {
    "Learning/1 reward": "reward/total",
    "Learning/2 accuracy": "reward/exact_answer",
    "Learning/3 KL": "policy/kl",
    "Learning/4 length": "rollouts/length",
}
"""Name of a main curve -> key of the loop's metric."""


def first_curves(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the values of the main curves from a round's metrics; missing ones are left out."""
    return {name: metrics[key] for name, key in _FIRST.items() if key in metrics}
