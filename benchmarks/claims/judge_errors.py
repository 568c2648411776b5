"""Error rate of `rewardflow judge`: pairs of equal quality that are looked at many times.

    python -m benchmarks.claims.judge_errors [--pairs 500] [--looks 50] [--problems 200]

A pair is a champion and, at each look, a new candidate of the same quality on the same problems. Any look that says
"better" is a false one. Both kinds of metric are simulated: right and wrong answers to problems of different
difficulty, and the preferences of a judge with position bias that sees both orders. The check and the levels of the
looks are those of the command. As a control, candidates that are truly better are looked at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.machine import describe
from models.base.atomic_write import write_file
from models.evaluation.gate.budget import next_look
from models.evaluation.gate.gate import better_check

Values = NDArray[np.float64]

RESULT = Path(__file__).parents[1] / "results" / "judge_errors.json"
BUDGET = 0.05
"""Probability of a false "better" that is allowed over all looks."""
GAIN = 0.25
"""True difference of the candidates of the control."""
FIRST_PLACE = 0.7
"""Probability that the biased judge prefers the first place, whatever the answers are."""
METRICS = ("accuracy", "preferences of a biased judge")


@dataclass(frozen=True)
class ErrorRate:
    """Result for one metric."""

    metric: str
    pairs: int
    looks: int
    problems: int
    false_better: int
    """Pairs with a false "better" at any look."""
    detected: float
    """Share of candidates of the control that were found at the first look."""

    @property
    def rate(self) -> float:
        """Share of the pairs with a false "better"."""
        return self.false_better / self.pairs


def measure(metric: str, pairs: int, looks: int, problems: int, seed: int = 0) -> ErrorRate:
    """Simulate pairs and count those with a false "better".

    Args:
        metric: one of METRICS.
        pairs, looks, problems: numbers of pairs, of looks at each pair, and of problems.
        seed: seed of the simulation.
    """
    random = np.random.default_rng(seed)
    false_better, detected = 0, 0
    for _ in range(pairs):
        ease = random.uniform(0.0, 1.0 - GAIN, problems)
        champion = (random.random(problems) < ease).astype(float)
        candidates = (_sides(metric, champion, ease, 0.0, random) for _ in range(looks))
        false_better += _any_better(candidates, looks)
        detected += _any_better([_sides(metric, champion, ease, GAIN, random)], looks)
    return ErrorRate(metric, pairs, looks, problems, false_better, detected / pairs)


def _sides(
    metric: str, champion: Values, ease: Values, gain: float, random: np.random.Generator
) -> tuple[Values, Values]:
    """Return the values of a new candidate and of the champion on each problem, [problems] each."""
    if metric == METRICS[0]:
        return (random.random(ease.size) < ease + gain).astype(float), champion
    better = random.random(ease.size) < 0.5 + gain / 2 / (1.0 - FIRST_PLACE)  # a mean difference of `gain`
    by_place = random.random(ease.size) < FIRST_PLACE
    candidate = np.where(by_place, 0.5, better.astype(float))  # both orders prefer the first place: equal
    return candidate, 1.0 - candidate


def _any_better(candidates: Iterable[tuple[Values, Values]], looks: int) -> bool:
    spent, any_better = 0.0, False
    for number, (new, old) in enumerate(candidates):
        look = next_look(number, spent, budget=BUDGET, looks=looks)
        spent = look.spent
        check, _, _ = better_check("metric", new, old, look, 0.95)
        any_better |= not check.failed
    return any_better


def main() -> int:
    """Simulate both metrics, write the result and return 1 if an error rate is above the budget."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.claims.judge_errors", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--pairs", type=int, default=500, help="pairs of equal quality (default 500)")
    parser.add_argument("--looks", type=int, default=50, help="looks at each pair (default 50)")
    parser.add_argument("--problems", type=int, default=200, help="problems of each look (default 200)")
    parser.add_argument("--out", type=Path, default=RESULT, help=f"JSON file (default {RESULT.name} in results/)")
    options = parser.parse_args()
    rates = [measure(metric, options.pairs, options.looks, options.problems) for metric in METRICS]
    for rate in rates:
        print(
            f"{rate.metric}: {rate.false_better} of {rate.pairs} pairs falsely better in {rate.looks} looks "
            f"({rate.rate:.1%}, at most {BUDGET:.0%}); of candidates better by {GAIN:g}, {rate.detected:.1%} found"
        )
    results = [asdict(rate) | {"rate": rate.rate} for rate in rates]
    write_file(options.out, json.dumps({"machine": describe(), "budget": BUDGET, "results": results}, indent=1) + "\n")
    return int(any(rate.rate > BUDGET for rate in rates))


if __name__ == "__main__":
    sys.exit(main())
