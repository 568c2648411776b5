"""Record of a training of a recipe: its curve and its seconds, in a file that is complete after every stage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from benchmarks.shared.right_share import RIGHT
from benchmarks.shared.rows import plain
from models.base.atomic_write import write_file
from models.training.clock import STAGES

SPEEDS = ("generate", "score", "learn", "round")
EVERY = 10
"""Rounds between two lines of a table."""


@dataclass(frozen=True)
class CurveRound:
    """One round as the loop reported it."""

    number: int
    """Number of the round, from 1."""
    reward: float
    """Mean over the completions, the reward model's share included."""
    accuracy: float
    """Share of the sampled completions that the recipe's verifier accepts as right."""
    seconds: Mapping[str, float]
    """Seconds of each stage (`models.training.clock`), and of the whole round."""
    tokens_a_second: Mapping[str, float]
    """Tokens a second by stage, counted as in `models.training.clock`."""
    length: float
    """Mean tokens of a completion."""
    entropy: float | None
    """Entropy, nats a token; None if no completion was trained on."""
    canary_gap: float | None
    """Largest difference of a log-prob between engine and learner, nats."""
    peak_gib: float

    @classmethod
    def of(cls, number: int, metrics: Mapping[str, float]) -> CurveRound:
        """Make the round from the loop's metrics."""
        return cls(
            number=number,
            reward=metrics["reward/total"],
            accuracy=metrics[f"reward/{RIGHT}" if f"reward/{RIGHT}" in metrics else "reward/exact_answer"],
            seconds={name: metrics[f"seconds/{name}"] for name in (*STAGES, "round")},
            tokens_a_second={name: metrics[f"speed/{name}"] for name in SPEEDS if f"speed/{name}" in metrics},
            length=metrics["rollouts/length"],
            entropy=metrics.get("policy/entropy"),
            canary_gap=metrics.get("engine/canary_gap"),
            peak_gib=metrics["memory/peak_gib"],
        )


@dataclass(frozen=True)
class HeldOutResults:
    """Results of the policy on the recipe's held-out problems of the validation split."""

    sampled: float
    """Share of right samples."""
    greedy: float
    """Share of right greedy answers."""
    tokens: float
    """Mean length of a sample."""
    problems: int
    samples: int
    """Samples of each problem."""
    loose: float | None = None
    """Mean share of the demands that a sample meets; None if the verifier does not measure in part."""
    finished: float | None = None
    """Share of samples that ended by themselves."""

    def __str__(self) -> str:
        """Render the figures as one line."""
        loose = "" if self.loose is None else f", loose {self.loose:.1%}"
        return (
            f"sampled {self.sampled:.1%}, greedy {self.greedy:.1%}{loose} "
            f"({self.problems} problems, {self.samples} samples each)"
        )


@dataclass
class Curve:
    """A training, up to its present state."""

    machine: dict[str, Any]
    device: str
    settings: dict[str, Any]
    precision: str = ""
    """Precision that the policy learned in; empty before it was opened."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of data, base, warm_start, reward_model, opening, rounds, and evaluation (all measurements together)."""
    pair_accuracy: float | None = None
    """Accuracy of the reward model on held-out pairs."""
    warm_start_loss: float | None = None
    """Loss of a given base after its warm start, on held-out demonstrations, nats a token."""
    base: HeldOutResults | None = None
    """The given base before its warm start; None without a base or a warm start."""
    before: HeldOutResults | None = None
    """The policy that the rounds begin with."""
    after: HeldOutResults | None = None
    rounds: list[CurveRound] = field(default_factory=list)
    stopped: str = ""
    """Reason why it has fewer rounds than the recipe; empty if it has them all."""

    def write(self, file: Path) -> None:
        """Write the curve to a file, which replaces an older one."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(plain(asdict(self), digits=5), indent=1) + "\n")


_CURVE = TypeAdapter(Curve)


def read(file: Path) -> Curve:
    """Read the training that a file holds.

    Raises:
        ValueError: it holds none.
    """
    return _CURVE.validate_json(file.read_text())


def windows(rounds: Sequence[CurveRound], every: int = EVERY) -> dict[str, list[CurveRound]]:
    """Group the rounds in stretches of `every`, by their label; the last may be shorter."""
    return {
        f"{part[0].number} to {part[-1].number}": list(part)
        for part in (rounds[at : at + every] for at in range(0, len(rounds), every))
    }


def table(curve: Curve) -> str:
    """Format the curve in means over `EVERY` rounds, then the held-out measurements and the seconds by stage."""
    lines = [f"{'rounds':<12}{'reward':>8}{'right':>8}{'tokens':>8}{'s a round':>11}{'generate':>10}{'learn':>8}"]
    for label, part in windows(curve.rounds).items():
        lines.append(
            f"{label:<12}{mean(part, 'reward'):>8.3f}{mean(part, 'accuracy'):>8.1%}{mean(part, 'length'):>8.1f}"
            f"{seconds(part, 'round'):>11.2f}{seconds(part, 'generate'):>10.2f}{seconds(part, 'learn'):>8.2f}"
        )
    measured = (("base", curve.base), ("before", curve.before), ("after", curve.after))
    lines += [f"held out {name}: {held}" for name, held in measured if held is not None]
    lines.append("seconds: " + ", ".join(f"{name} {value:.1f}" for name, value in curve.seconds.items()))
    return "\n".join(lines + ([curve.stopped] if curve.stopped else []))


def compare_curves(curve: Curve, other: Curve) -> str:
    """Format both curves in means over the same rounds, and the largest gap between them."""
    mine, others = windows(curve.rounds), windows(other.rounds)
    both = [label for label in mine if label in others]
    if not both:
        return f"{other.device}: no rounds in common"
    head = f"{'rounds':<12}{curve.device + ' right':>12}{other.device + ' right':>12}{'gap':>8}"
    gaps = {label: mean(mine[label], "accuracy") - mean(others[label], "accuracy") for label in both}
    lines = [head] + [
        f"{label:<12}{mean(mine[label], 'accuracy'):>12.1%}{mean(others[label], 'accuracy'):>12.1%}{gaps[label]:>+8.1%}"
        for label in both
    ]
    widest = max(both, key=lambda label: abs(gaps[label]))
    lines.append(f"largest gap in means of up to {EVERY} rounds: {gaps[widest]:+.1%}, in rounds {widest}")
    for name, ours, theirs in (("before", curve.before, other.before), ("after", curve.after, other.after)):
        if ours is not None and theirs is not None:
            lines.append(
                f"held out {name}: sampled {ours.sampled:.1%} and {theirs.sampled:.1%}, greedy {ours.greedy:.1%} and "
                f"{theirs.greedy:.1%}"
            )
    return "\n".join(lines)


def mean(rounds: Sequence[CurveRound], name: str) -> float:
    """Compute the mean of a number of each round."""
    return sum(getattr(each, name) for each in rounds) / len(rounds)


def seconds(rounds: Sequence[CurveRound], stage: str) -> float:
    """Compute the mean seconds of a stage in a round."""
    return sum(each.seconds[stage] for each in rounds) / len(rounds)
