"""The rows of one size and one batch: ours compared with a plain padded loop, and with TRL if it is installed."""

from __future__ import annotations

import statistics

from benchmarks.gpu.shapes import Packed, Size, label_of
from benchmarks.gpu.timing import Terms, Timed, timed
from benchmarks.gpu.trl import trl_update
from benchmarks.gpu.updates import our_update, plain_update
from benchmarks.shared.rows import Row, compare, unmeasured
from benchmarks.shared.settings import has_trl

SHARES = {4096: 0.35, 16384: 0.45}
"""Target shares of the measured peak, by the most tokens of a row."""
FASTER = 1.3
"""Target ratio of tokens a second to the plain loop's."""
SMALLER = 0.6
"""Target share of the plain loop's peak memory, at most."""
STATE_BYTES = 16
"""Bytes of a weight in float32 with its gradient and AdamW's two moments."""
PLAIN = "a plain padded loop at its fastest micro-batch"
TRL = "TRL GRPOTrainer, its loss and step"
GIB = 2**30


def update_name(size: Size, batch: Packed) -> str:
    """Return the measure that a profile of the cell is stored under."""
    return label_of(size, f"{batch.what}: update")


def cell(size: Size, batch: Packed, terms: Terms, peak: float) -> list[Row]:
    """Measure all rows of a cell; one row with the reason if ours does not run.

    Args:
        peak: operations a second of a bf16 matrix product on the device.
    """
    cuda = terms.device.type == "cuda"
    ours = timed(lambda: our_update(size, batch, terms.device), terms)
    if ours.failure:
        return [unmeasured(update_name(size, batch), "tokens/s", ours.failure, FASTER if cuda else None)]
    plain = timed(lambda: plain_update(size, batch, terms), terms)
    rows = [
        _rate(size, batch, ours, plain, PLAIN, FASTER if cuda else None),
        _share(size, batch, ours, peak, SHARES.get(batch.budget) if cuda else None),
        _memory(size, batch, ours, plain, PLAIN, cuda, 1 / SMALLER),
        _waits(size, batch, ours, plain),
    ]
    if has_trl():
        trl = timed(lambda: trl_update(size, batch, terms.device), terms)
        rows += [_rate(size, batch, ours, trl, TRL, None), _memory(size, batch, ours, trl, TRL, cuda, None)]
    return rows


def _rate(size: Size, batch: Packed, ours: Timed, peer: Timed, against: str, goal: float | None) -> Row:
    mine, other = int(ours.facts["tokens"]), peer.facts.get("tokens")
    short = peer.failure
    if not short and other:
        short = f"ours computes {mine:,} tokens a step, the peer {other:,}: {other / mine:.2f} times as many"
    details = {
        "prompt": batch.prompt,
        "group": batch.group,
        "completions": list(batch.lengths),
        "counted_tokens": batch.separate_tokens,
        "ours": {
            "seconds": statistics.median(ours.seconds),
            "first_update_seconds": ours.first,
            "gib": ours.memory,
            **ours.facts,
        },
        "peer": {"failure": peer.failure} if peer.failure else {"gib": peer.memory, **peer.facts},
    }
    return compare(
        update_name(size, batch) + (", TRL" if against == TRL else ""),
        [batch.separate_tokens / seconds for seconds in ours.seconds],
        [batch.separate_tokens / seconds for seconds in peer.seconds] or None,
        "tokens/s",
        goal,
        short=short,
        against=against,
        details=details,
    )


def _share(size: Size, batch: Packed, ours: Timed, peak: float, goal: float | None) -> Row:
    short = f"below {goal:.0%} of the measured peak" if goal else ""
    if goal and ours.facts["layers_read_again"]:
        short += "; memory ran out, so layers are read again: a third more arithmetic, which does not count"
    return compare(
        label_of(size, f"{batch.what}: share of the bf16 peak"),
        [ours.facts["flops"] / seconds / 1e12 for seconds in ours.seconds],
        [peak / 1e12],
        "TFLOP/s",
        goal,
        against="measured peak of a bf16 matrix product",
        wanted=f"{goal:.0%}" if goal else "",
        short=short,
    )


def _memory(
    size: Size, batch: Packed, ours: Timed, peer: Timed, against: str, counted: bool, goal: float | None
) -> Row:
    measure = label_of(size, f"{batch.what}: peak memory") + (", TRL" if against == TRL else "")
    if not counted:
        return unmeasured(measure, "GiB", "only CUDA counts it")
    state = int(ours.facts["parameters"]) * STATE_BYTES / GIB
    return compare(
        measure,
        [ours.memory],
        None if peer.failure else [peer.memory],
        "GiB",
        goal,
        smaller_is_better=True,
        short=peer.failure or f"{state:.1f} GiB of either side are weights, gradients and moments",
        against=against,
        wanted=f"{SMALLER} of it" if goal else "",
        details={"weights_gradients_moments_gib": state},
    )


def _waits(size: Size, batch: Packed, ours: Timed, peer: Timed) -> Row:
    measure = label_of(size, f"{batch.what}: waits of the host for the device")
    if ours.waits.count is None:
        return unmeasured(measure, "a step", ours.waits.failure)
    return compare(
        measure,
        [ours.waits.count],
        None if peer.waits.count is None else [peer.waits.count],
        "a step",
        None,
        smaller_is_better=True,
        short=peer.failure or peer.waits.failure or ("none at all" if not ours.waits.count else ""),
        against=PLAIN,
        details={"ours": ours.waits.places, "peer": peer.waits.places},
    )
