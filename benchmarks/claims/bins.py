"""Exact training of a policy over bins: on-policy share and negative gradient as two axes (paper 381).

An answer is one of 100 bins. The reward is exp(-((bin - 70) / 10)^2), and the given data are near bin 20, where it is
almost zero, as in the didactic problem of the paper (code read: bandit_experiment). The policy is a discretised normal
distribution of constant width, and its centre learns: as in a network, an update moves neighbouring answers together.
(With a logit for each bin, nothing reaches bins without mass.) Every expectation over answers and pairs is enumerated,
without noise or a seed. With d = (1 - s) data + s pi, and a pair (i, j) of independent draws from d in which i
has the higher reward, the logits would move by

    step = E[ sigmoid(-beta (h_i - h_j)) ((e_i - pi) - w (e_j - pi)) ],      h = log pi / ref

and the centre moves along that. e_i is the unit vector of bin i, s the on-policy share, w the weight of the negative
gradient:

    s = 0, w = 1    DPO on given pairs        s = 0, w = 0    likelihood of the better answers (weighted_likelihood)
    s = 1, w = 1    online DPO                s = 1, w = 0    likelihood of own better answers (raft, best of 2)

`iterative` draws from the policy of the last multiple of so many steps, as iterative_dpo does, and `group_step` is the
policy gradient of grpo.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

BINS, BEST, WIDTH = 100, 70.0, 10.0
GIVEN, SPREAD = 20.0, 15.0
"""Centre of the given data, and standard deviation of the data and of every policy, bins."""


def rewards() -> Values:
    """Return the reward of each bin, [bins]."""
    return np.asarray(np.exp(-(((np.arange(BINS) - BEST) / WIDTH) ** 2)), dtype=np.float64)


def policy_logits(centre: float) -> Values:
    """Return the logits of the policy with this centre, [bins]."""
    return np.asarray(-0.5 * ((np.arange(BINS) - centre) / SPREAD) ** 2, dtype=np.float64)


def given() -> Values:
    """Return the distribution of the given data, and of the policy before the training, [bins]."""
    return softmax(policy_logits(GIVEN))


def softmax(logits: Values) -> Values:
    """Return the probabilities of logits, [bins]."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, kw_only=True)
class PairMethod:
    """A method that learns from pairs, at a place of the two axes."""

    on_policy: float
    """Share of the answers that the policy draws itself, in [0, 1]."""
    negative: float
    """Weight of the gradient that lowers the worse answer, in [0, 1]."""
    beta: float = 0.1
    iterative: int = 1
    """Steps after which the policy that draws is updated."""

    def step(self, logits: Values, drawing: Values, reference: Values, worth: Values) -> Values:
        """Return the expected step of the logits, [bins].

        Args:
            logits: logits of the policy, [bins].
            drawing: probabilities of the policy that draws, [bins].
            reference: probabilities of the reference, which wrote the given data, [bins].
            worth: reward of each bin, [bins].
        """
        policy = softmax(logits)
        source = (1 - self.on_policy) * reference + self.on_policy * drawing
        implied = np.log(policy) - np.log(reference)
        weight = source[:, None] * source[None, :] * (worth[:, None] > worth[None, :])
        weight = weight / (1 + np.exp(np.clip(self.beta * (implied[:, None] - implied[None, :]), -500, 500)))
        better, worse = weight.sum(1), weight.sum(0)
        return np.asarray((better - better.sum() * policy) - self.negative * (worse - worse.sum() * policy))


def group_step(logits: Values, worth: Values) -> Values:
    """Return the expected policy gradient of grpo with advantages in standard deviations, [bins]."""
    policy = softmax(logits)
    mean = policy @ worth
    deviation = float(np.sqrt(policy @ (worth - mean) ** 2))
    return np.asarray(policy * (worth - mean) / max(deviation, 1e-12))


@dataclass(frozen=True)
class Course:
    """Course of a training: values before it and after each step, [steps + 1]."""

    reward: list[float]
    """Expected reward."""
    centre: list[float]
    """Centre of the policy, bins."""


def trained(method: PairMethod | None, steps: int, rate: float = 5.0) -> Course:
    """Train the centre by a method; None: by `group_step`.

    Args:
        method: gives the steps of the logits.
        steps: number of steps.
        rate: factor of the gradient of the centre.
    """
    reference, worth = given(), rewards()
    centre, drawing = GIVEN, reference
    course = Course([float(reference @ worth)], [centre])
    for number in range(steps):
        logits = policy_logits(centre)
        if method is None:
            step = group_step(logits, worth)
        else:
            if number % method.iterative == 0:
                drawing = softmax(logits)
            step = method.step(logits, drawing, reference, worth)
        centre += rate * float(step @ (np.arange(BINS) - centre)) / SPREAD**2
        course.reward.append(float(softmax(policy_logits(centre)) @ worth))
        course.centre.append(centre)
    return course
