"""The time of a fine-tuning by stage, summed over the rounds of its journal, as a small table.

stage        seconds  share  tokens/s
generate       210.4  39.1%     9,120
learn          270.0  50.2%    21,300      40 of 330 GFLOP/s, 12.1 % of the machine's peak
together       538.0 100.0%     3,570      peak memory 3.1 GiB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from models.training.clock import STAGES
from tasks.tracking import records, runs, store, tags

if TYPE_CHECKING:
    from tasks.tracking.journal import JournalRow

TABLE = "time.json"
"""Artifact of a fine-tuning's run with its table."""
HIDDEN = "hidden behind learn"
TOGETHER = "all rounds"


@dataclass(frozen=True)
class TimeLine:
    """One line of the table."""

    stage: str
    seconds: float
    share: float | None
    """Share of all rounds together; None for time outside them."""
    tokens_per_second: float | None = None
    """None if the stage has no tokens of its own."""
    gflops: float | None = None
    """10^9 operations a second that the updates needed; only for `learn`."""
    peak_share: float | None = None
    """Their share of the machine's fastest matrix product; only for `learn`."""
    peak_gib: float | None = None
    """Peak memory, GiB; only for the total."""


def time_lines(rows: Sequence[JournalRow], outside: float | None = None) -> list[TimeLine]:
    """Return the table of a journal's rounds; empty if they have no times.

    Args:
        rows: rows of the journal of a fine-tuning.
        outside: seconds before the first and after the last round: engine and models opened, weights saved.
    """
    rounds = [row.metrics for row in rows if "seconds/round" in row.metrics]
    whole = _sum(rounds, "seconds/round")
    if not whole:
        return []
    lines = []
    for stage in STAGES:
        seconds = _sum(rounds, f"seconds/{stage}")
        gflops, share = (_mean(rounds, key, "seconds/learn") for key in ("speed/learn_gflops", "speed/peak_share"))
        speed = _mean(rounds, f"speed/{stage}", f"seconds/{stage}")
        learning = stage == "learn"
        lines.append(
            TimeLine(
                stage.replace("_", " "),
                seconds,
                seconds / whole,
                speed,
                gflops if learning else None,
                share if learning else None,
            )
        )
    hidden = _sum(rounds, "seconds/hidden")
    if any("seconds/hidden" in metrics for metrics in rounds):
        lines.append(TimeLine(HIDDEN, -hidden, -hidden / whole))
    held = max((metrics.get("memory/peak_gib", 0.0) for metrics in rounds), default=0.0)
    lines.append(
        TimeLine(TOGETHER, whole, 1.0, _mean(rounds, "speed/round", "seconds/round"), peak_gib=held if held else None)
    )
    if outside is not None:
        lines.append(TimeLine("start and end", outside, None))
    return lines


def time_metrics(lines: Sequence[TimeLine]) -> dict[str, float]:
    """Return the table's main numbers as metrics of the step's run."""
    seconds: dict[str, float] = {}
    for line in lines:
        if line.stage == TOGETHER:
            seconds |= {"time/rounds": line.seconds, "time/tokens_per_second": line.tokens_per_second or 0.0}
            seconds |= {"time/peak_gib": line.peak_gib or 0.0}
        if line.peak_share and line.gflops:
            seconds |= {"time/peak_share": line.peak_share, "time/machine_gflops": line.gflops / line.peak_share}
    return seconds


def bottleneck(lines: Sequence[TimeLine]) -> str:
    """Return one line about the stage that takes the longest; "" if the table is empty.

    Time of `generate` that is hidden behind `learn` is not counted for `generate`.
    """
    hidden = sum(line.seconds for line in lines if line.stage == HIDDEN)
    visible = {
        line.stage: line.seconds + (hidden if line.stage == "generate" else 0.0)
        for line in lines
        if line.share is not None and line.stage not in (HIDDEN, TOGETHER)
    }
    whole = sum(line.seconds for line in lines if line.stage == TOGETHER)
    if not visible or not whole:
        return ""
    stage = max(visible, key=lambda name: visible[name])
    speed = next(line.tokens_per_second for line in lines if line.stage == stage)
    tokens = "" if speed is None else f", {speed:,.0f} tokens/s"
    return f"{stage} takes {visible[stage] / whole:.1%} of the rounds: {visible[stage]:.1f} of {whole:.1f} s{tokens}"


def recorded(run_id: str) -> list[TimeLine]:
    """Read the table of a flow run's fine-tuning, logged by itself or by the run it reused.

    Empty without a fine-tuning, or before its table is logged.
    """
    flow = store.patiently(store.client().get_run, run_id)
    steps = store.patiently(
        store.client().search_runs,
        [flow.info.experiment_id],
        f"tags.`{runs.PARENT_TAG}` = '{run_id}' AND tags.`{tags.STEP}` = 'fine_tune'",
        order_by=["attributes.start_time DESC"],
    )
    if not steps:
        return []
    tagged = steps[0].data.tags
    return from_rows(records.read_table_if_kept(tagged.get(tags.REUSED, steps[0].info.run_id), TABLE))


def table_rows(lines: Sequence[TimeLine]) -> list[dict[str, Any]]:
    """Return the table as plain rows, for an artifact."""
    return [asdict(line) for line in lines]


def from_rows(rows: Sequence[Mapping[str, Any]]) -> list[TimeLine]:
    """Return the table from the rows of an artifact."""
    return [TimeLine(**row) for row in rows]


def remark(line: TimeLine) -> str:
    """Return the text in the last column of a line: peak memory, or the speed of the updates; "" for other lines."""
    if line.peak_gib is not None:
        return f"peak memory {line.peak_gib:.2f} GiB"
    if line.gflops is not None and line.peak_share:
        return (
            f"{line.gflops:,.0f} of {line.gflops / line.peak_share:,.0f} GFLOP/s, "
            f"{line.peak_share:.1%} of the machine's peak"
        )
    return ""


def _sum(rounds: Sequence[Mapping[str, float]], key: str) -> float:
    return sum(metrics.get(key, 0.0) for metrics in rounds)


def _mean(rounds: Sequence[Mapping[str, float]], key: str, seconds: str) -> float | None:
    """Return the mean of a speed over the time of the rounds that have it; None if none does."""
    having = [metrics for metrics in rounds if key in metrics]
    time = _sum(having, seconds)
    return sum(metrics[key] * metrics[seconds] for metrics in having) / time if time else None
