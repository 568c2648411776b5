"""Papers' claims tested at toy scale (`python -m benchmarks.claims`): effect, interval, verdict.

Every claim is an effect measured once a seed: two arms from the same warm start, on the same data, compared on the same
held-out draws, so that the seeds' effects are differences (or ratios) of pairs. The interval is Student's t over the
seeds. A claim is `supported` if the interval is beyond the line that the claim sets, `not supported` if it is on the
other side, and `inconclusive` if it contains the line. An effect that is small here may be large elsewhere, and vice
versa: a verdict is about this toy (benchmarks/claims/toy.py) and its few rounds.

Each finding is written to the file as it is made and replaces the older one of the same name. Findings that are not
selected with `--only`, or not reached by a run that is killed, stay unchanged.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from scipy import stats

from benchmarks.claims.claim_trials import TRIALS, Trial
from benchmarks.claims.toy import Toy, make_toy
from benchmarks.shared.machine import describe
from models.base.atomic_write import write_file

Verdict = Literal["supported", "not supported", "inconclusive"]
RESULT = Path(__file__).parents[1] / "results" / "claims.json"
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


@dataclass(frozen=True)
class ClaimResult:
    """One line: a claim, its effect and the verdict."""

    name: str
    paper: int | str
    """Number in the catalogue, or the paper's address if it has none."""
    claim: str
    measure: str
    """Name and unit of the effect."""
    effect: float
    """Mean over the seeds."""
    low: float
    high: float
    line: float
    """Line that the effect must exceed."""
    larger: bool
    """Whether the effect must be above the line, as in most claims, or below."""
    verdict: Verdict
    seeds: tuple[float, ...]
    """Effect of each seed; their number is the number of seeds."""
    values: dict[str, float]
    """Mean of each number behind the effect, by arm."""
    seconds: float


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Compute Student's t interval of the mean of `values`, [seeds]; without any spread it is a point."""
    centre = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(stats.t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return centre - half, centre + half


def verdict(low: float, high: float, line: float, larger: bool) -> Verdict:
    """Classify a claim that the effect is above (or below) a line from the confidence interval of the effect."""
    if low > line:
        return "supported" if larger else "not supported"
    if high < line:
        return "not supported" if larger else "supported"
    return "inconclusive"


def measure_claim(trial: Trial, toy: Toy, seeds: int, report: Callable[[str], None]) -> ClaimResult:
    """Measure a claim's effect once a seed."""
    began = time.perf_counter()
    effects: list[float] = []
    values: dict[str, list[float]] = {}
    for seed in range(seeds):
        effect, numbers = trial.measure(toy, seed)
        effects.append(effect)
        for name, value in numbers.items():
            values.setdefault(name, []).append(value)
        details = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        report(f"{trial.name}: seed {seed + 1} of {seeds}, {trial.measures} {effect:+.4g} ({details})")
    low, high = interval(effects)
    return ClaimResult(
        trial.name, trial.paper, trial.claim, trial.measures, statistics.fmean(effects), low, high, trial.line,
        trial.larger, verdict(low, high, trial.line, trial.larger), tuple(effects),
        {name: statistics.fmean(measured) for name, measured in values.items()}, time.perf_counter() - began,
    )  # fmt: skip


def table(findings: Sequence[ClaimResult]) -> str:
    """Format one line a claim."""
    head = ("claim", "paper", "effect", "95 % interval", "line", "verdict")
    rows = [
        (
            finding.claim, str(finding.paper), f"{finding.effect:.3g} ({finding.measure})",
            f"[{finding.low:.3g}, {finding.high:.3g}]",
            f"{'>' if finding.larger else '<'} {finding.line:g}", finding.verdict,
        )
        for finding in findings
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def guide_rows(findings: Sequence[Mapping[str, Any]]) -> str:
    """Format the table of docs/benchmarks.md from the findings of a file."""
    lines = ["| claim | paper | effect | 95 % interval | line | verdict |", "| --- " * 6 + "|"]
    lines += [
        f"| {finding['claim']} | {finding['paper']} | {finding['effect']:.3g} ({finding['measure']}) | "
        f"{finding['low']:.3g} to {finding['high']:.3g} | {'>' if finding['larger'] else '<'} {finding['line']:g} | "
        f"{finding['verdict']} |"
        for finding in findings
    ]
    return "\n".join(lines)


def read_findings(file: Path) -> list[dict[str, Any]]:
    """Return the findings in a file; none if the file does not exist."""
    findings: list[dict[str, Any]] = json.loads(file.read_text())["findings"] if file.is_file() else []
    return findings


def record(file: Path, finding: ClaimResult, machine: Mapping[str, Any]) -> None:
    """Put a finding into a file, where it replaces the older one of its name; claims are in the order of the trials.

    Args:
        file: JSON; created if it is missing, replaced as a whole.
        finding: the new one.
        machine: what it was measured on.
    """
    by_name = {record["name"]: record for record in read_findings(file)} | {finding.name: asdict(finding)}
    findings = [by_name[trial.name] for trial in TRIALS if trial.name in by_name]
    write_file(file, json.dumps({"machine": machine, "findings": findings}, indent=1) + "\n")


def main() -> int:
    """Run the selected claims and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=[trial.name for trial in TRIALS], help="a claim's name")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each arm (default 5, at least 2)")
    parser.add_argument("--out", type=Path, default=RESULT, help=f"JSON file (default {RESULT.name} in results/)")
    parser.add_argument("--guide", action="store_true", help="run nothing; print the file's findings as in the guide")
    options = parser.parse_args()
    if options.guide:
        print(guide_rows(read_findings(options.out)))
        return 0
    if options.seeds < 2:
        parser.error("--seeds must be 2 or more: one run has no spread")
    torch.set_num_threads(1)  # models this small only lose by more
    machine = describe()
    findings: list[ClaimResult] = []
    with tempfile.TemporaryDirectory() as place:
        toy = make_toy(Path(place))
        for trial in TRIALS:
            if options.only and trial.name not in options.only:
                continue
            findings.append(measure_claim(trial, toy, options.seeds, lambda line: print(line, file=sys.stderr)))
            record(options.out, findings[-1], machine)
    print(table(findings))
    print(f"\n{sum(finding.seconds for finding in findings) / 60:.1f} minutes; {options.out}")
    return 0
