"""Simulation of the gate over a year of nights, with its own code.

    python -m benchmarks.speed.gate_nights [--years 100] [--quick]

Answers of policies are drawn, not generated: problems of five levels whose difficulty varies, 16 samples each, and each
trained candidate differs from the champion by its own noise on every problem. Four questions:

    false       at equal quality, in how many of the simulated years is any of 365 candidates promoted
    bootstrap   the same for the rule "a 95 % interval is above zero", applied every night
    guards      how often an equally good candidate passes all guards, against champion and anchor together
    power       how often a candidate that is better by a given amount is promoted at night 1, 30, 180 and 365
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.evaluation.bootstrap import wilson
from models.evaluation.gate.gate import GateSettings, judge_measurements
from models.evaluation.measured import GateMeasurements

Values = NDArray[np.float64]

RESULT = Path(__file__).parents[1] / "results" / "gate_nights.json"

LEVELS = (100, 100, 100, 100, 60)
"""Problems of each level, as in the built-in data."""
EASE = (3.2, 2.4, 1.4, 0.5, -0.3)
"""Mean of the logit of a right sample at each level."""
SPREAD = 1.5
"""Deviation of a problem's logit from that of its level: how different the problems are."""
OWN = 0.5
"""Deviation of a policy's logit on a problem from the problem's: how different two trainings of equal quality are."""
SAMPLES = 16
NIGHTS = (1, 30, 180, 365)
DIFFERENCES = (0.01, 0.02, 0.04, 0.08)


@dataclass(frozen=True)
class GateSplitDraw:
    """One draw of a gate split."""

    levels: Values
    ease: Values
    """Logit of a right sample for a policy without its own noise, [n]."""


def draw_problems(chance: np.random.Generator) -> GateSplitDraw:
    """Draw problems of all levels."""
    levels = np.repeat(np.arange(1.0, len(LEVELS) + 1), LEVELS)
    return GateSplitDraw(levels, np.repeat(np.array(EASE), LEVELS) + SPREAD * chance.normal(size=levels.size))


def answers(problems: GateSplitDraw, shift: float, chance: np.random.Generator) -> GateMeasurements:
    """Draw the answers of a policy that is `shift` logits better than the first."""
    n = problems.levels.size
    logit = problems.ease + shift + OWN * chance.normal(size=n)
    right = 1 / (1 + np.exp(-logit))
    correct = (chance.random((n, SAMPLES)) < right[:, None]).astype(np.float64)
    greedy = (chance.random(n) < 1 / (1 + np.exp(-2.5 * logit))).astype(np.float64)
    hardness = chance.normal(size=(n, 1)) * 0.2
    scores = 1.2 * correct + 0.7 * (problems.ease[:, None] / SPREAD) + hardness + chance.normal(size=correct.shape)
    accuracy = correct.mean(axis=1)
    wrong_texts = 1 + (SAMPLES - 1) * np.clip(1 - right + 0.1 * chance.normal(size=n), 0, 1)
    return GateMeasurements(
        metrics={
            "sampled_accuracy": accuracy,
            "greedy_accuracy": greedy,
            "easiest_accuracy": np.where(problems.levels == 1, accuracy, np.nan),
        },
        tokens=10 + 8 * problems.levels + chance.normal(size=n),
        distinct=wrong_texts / SAMPLES,
        flagged=np.zeros(n),
        correct=correct,
        scores=scores,
    )


def shift_for(difference: float) -> float:
    """Find the logits by which a policy must be better for an accuracy that is better by `difference` over all
    problems."""
    chance = np.random.default_rng(7)
    ease = np.concatenate([draw_problems(chance).ease for _ in range(60)])
    noise = OWN * chance.normal(size=ease.size)

    def accuracy(shift: float) -> float:
        return float((1 / (1 + np.exp(-(ease + shift + noise)))).mean())

    low, high = 0.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if accuracy(middle) - accuracy(0.0) < difference else (low, middle)
    return high


def simulate_year(seed: int, settings: GateSettings, nights: int) -> tuple[bool, bool, bool]:
    """Return whether a candidate of the champion's quality was found better, was promoted, was above zero by an
    interval."""
    chance = np.random.default_rng(seed)
    problems = draw_problems(chance)
    champion, anchor = answers(problems, 0.0, chance), answers(problems, 0.0, chance)
    better = promoted = interval = False
    looked, spent = 0, 0.0
    for _ in range(nights):
        look = settings.next_look(looked, spent)
        looked, spent = look.number, look.spent
        verdict = judge_measurements(answers(problems, 0.0, chance), champion, settings, anchor=anchor, look=look)
        better |= verdict.checks[0].state == "passed"
        promoted |= verdict.promoted
        interval |= verdict.difference.low > 0
    return better, promoted, interval


def pass_guards(seed: int, settings: GateSettings) -> tuple[bool, list[str]]:
    """Return whether an equally good candidate passes every guard against champion and anchor, and which it fails."""
    chance = np.random.default_rng(seed)
    problems = draw_problems(chance)
    new, old, anchor = (answers(problems, 0.0, chance) for _ in range(3))
    failed = [c.name for c in judge_measurements(new, old, settings, anchor=anchor).checks[1:] if c.state == "failed"]
    return not failed, failed


def find_better(seed: int, settings: GateSettings, shift: float) -> list[bool]:
    """Return whether a better candidate is promoted at each of NIGHTS."""
    chance = np.random.default_rng(seed)
    problems = draw_problems(chance)
    new, old, anchor = answers(problems, shift, chance), answers(problems, 0.0, chance), answers(problems, 0.0, chance)
    nights = []
    for night in NIGHTS:
        look = settings.next_look(night - 1)
        nights.append(judge_measurements(new, old, settings, anchor=anchor, look=look).promoted)
    return nights


def share(hits: Sequence[bool]) -> dict[str, Any]:
    """Return the share of hits, with Wilson's 95 % interval."""
    interval = wilson(sum(hits), len(hits))
    return {"share": interval.estimate, "low": interval.low, "high": interval.high, "of": len(hits)}


def main(arguments: list[str] | None = None) -> int:
    """Run the simulation, print its table and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.gate_nights", description=__doc__)
    parser.add_argument("--years", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="few draws, nothing is written")
    given = parser.parse_args(arguments)
    years, nights, draws = (2, 10, 20) if given.quick else (given.years, 365, 400)
    settings = GateSettings()
    simulated = [simulate_year(seed, settings, nights) for seed in range(years)]
    passed = [pass_guards(10_000 + seed, settings) for seed in range(draws)]
    names = [name for _, failed in passed for name in failed]
    results: dict[str, Any] = {
        "nights": nights,
        "problems": sum(LEVELS),
        "samples": SAMPLES,
        "found_better_in_a_year": share([better for better, _, _ in simulated]),
        "promoted_in_a_year": share([promoted for _, promoted, _ in simulated]),
        "by_an_interval_every_night": share([interval for _, _, interval in simulated]),
        "all_guards_passed": share([all_passed for all_passed, _ in passed]),
        "guards_failed": {name: names.count(name) / draws for name in sorted(set(names))},
        "promoted_when_better": {},
    }
    for difference in DIFFERENCES:
        shift = shift_for(difference)
        shares = np.array([find_better(20_000 + seed, settings, shift) for seed in range(draws)])
        results["promoted_when_better"][f"{difference:.2f}"] = dict(
            zip(map(str, NIGHTS), shares.mean(axis=0).tolist(), strict=True)
        )
    for key, value in results.items():
        print(f"{key:<28} {value}")
    if not given.quick:
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
