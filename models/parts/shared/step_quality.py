"""The quality of a partial solution, updated step by step from the remaining distance (ReST-MCTS*; paper 294).

    v_0 = 0,    v_k = max(v_{k-1} + w_k, 0),    w_k = (1 - v_{k-1}) / (m_k + 1) * (1 - 2 r_k)

m_k is the number of steps from step k to a right answer, r_k the chance that the step is wrong. The weight of a step is
the larger the nearer it comes to the end. v stays in [0, 1]; it is 1 at a right answer and only there, and along a
right solution of n steps it is k / n after step k.
"""

from __future__ import annotations


def step_weight(previous: float, distance: int, wrong: float) -> float:
    """Compute the weight w_k by which a step changes the quality, in [-1, 1].

    Args:
        previous: quality before the step, in [0, 1].
        distance: steps from behind this one to a right answer (m_k), 0 where this one states it.
        wrong: chance that the step is wrong (r_k), in [0, 1].
    """
    return (1.0 - previous) / (distance + 1) * (1.0 - 2.0 * wrong)


def step_quality(previous: float, distance: int, wrong: float) -> float:
    """Compute the quality v_k after a step, in [0, 1]; the arguments are those of `step_weight`."""
    return max(previous + step_weight(previous, distance, wrong), 0.0)
