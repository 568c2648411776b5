"""Tests on a CPU of the benchmark of one CUDA device. No test sets a limit on a measured time."""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import cell as gpu_cell
from benchmarks.gpu import determinism as gpu_determinism
from benchmarks.gpu import published as gpu_published
from benchmarks.gpu import sweep as gpu
from benchmarks.gpu import waits as gpu_waits
from benchmarks.gpu.determinism import determinism_cell, deterministic
from benchmarks.gpu.profile import lines_of, operations_of
from benchmarks.gpu.published import KINDS, PEAK, flops_a_token
from benchmarks.gpu.shapes import OTHERS, SIZES, TINY_ROWS, TINY_SIZES, UNBROKEN, Packed
from benchmarks.gpu.timing import NO_MEMORY, NO_TIME, Terms, Timed, Update, timed
from benchmarks.gpu.updates import our_update, plain_update
from benchmarks.gpu.waits import SAYING, Waits, counted, waits_of
from benchmarks.shared.batches import Batch, tail
from benchmarks.shared.rows import Row, read
from benchmarks.speed.padded import PaddedLoop

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
ENDLESS = Terms(CPU, repeats=1, deadline=float("inf"))
(TINY, _), (SHORT, _) = TINY_SIZES, TINY_ROWS
UNEVEN = Batch(prompt=3, group=2, lengths=(1, 4, 2, 2))


def measured(folder: Path, *options: str) -> tuple[int, dict[str, Row]]:
    """Run the benchmark with tiny shapes. Return its exit code and its rows by measure."""
    out = folder / "gpu.json"
    code = gpu.main(["--device", "cpu", "--tiny", "--repeats", "1", "--out", str(out), *options])
    return code, {row.measure: row for row in read(out)}


def test_tokens_are_those_of_the_lengths() -> None:
    assert UNEVEN.tokens == 2 * 3 + 9
    assert UNEVEN.separate_tokens == 4 * 3 + 9
    assert [UNEVEN.padded_tokens(rows) for rows in (1, 2, 3, 4)] == [21, 2 * 7 + 2 * 5, 3 * 7 + 5, 4 * 7]


def test_the_operations_of_an_update_are_those_that_hand_and_paper_give() -> None:
    batch = Packed(UNEVEN.prompt, UNEVEN.group, UNEVEN.lengths, 64, "", "")
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128  # queries and output; one head of keys and values; feed-forward
    keys = 2 * 6 + (3 + 1) + (12 + 10) + 2 * (6 + 3)  # read by prompts; by completions, of the prompt and their own
    by_hand = 6 * 2 * layer * 15 + 6 * 64 * 512 * 9 + 12 * 2 * 64 * keys
    assert our_update(TINY, batch, CPU).facts()["flops"] == by_hand


def test_heavy_tailed_completions_have_the_lengths_of_the_shape() -> None:
    (shape,) = (batch for batch in OTHERS if batch.name == "tail")
    assert shape.lengths == tail(len(shape.lengths), shortest=48, longest=4096)
    assert max(shape.lengths) > 10 * sorted(shape.lengths)[len(shape.lengths) // 2]
    prompts, completions = shape.ids(512)
    assert [len(prompt) for prompt in prompts] == [64] * (len(shape.lengths) // 16)
    assert [len(ids) for group in completions for ids in group] == list(shape.lengths)
    assert [len(group) for group in completions] == [16] * len(prompts)
    assert [len(ids) for _, ids in shape.pairs(512)] == list(shape.lengths)


@pytest.mark.rotating(of=6)
def test_every_line_of_an_update_runs_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = measured(tmp_path, "--only", "0.6B-4k", "1.7B-tail", "determinism")
    printed = capsys.readouterr().out
    assert code == 0
    measures = ("update", "share of the bf16 peak", "peak memory", "waits of the host for the device")
    for label in ("tiny, rows of 64", "tiny, wider, prompt 4, 4 completions of 3 to 64"):
        update, share, memory, waits = (rows[f"{label}: {measure}"] for measure in measures)
        assert update.ours > 0 and update.peer and share.ours > 0
        assert (memory.ours, waits.ours) == (0, 0) and memory.reason and waits.reason
        shares = [operation["share"] for operation in update.details["profile"]["operations"]]
        assert len(shares) == 10 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1
        assert f"{label}: update: operations take" in printed
    assert rows["tiny, rows of 64: update in deterministic mode"].peer
    assert rows["tiny, rows of 64: the same bits twice in deterministic mode, after 2 updates"].met


@pytest.mark.rotating(of=6)
def test_what_has_no_time_left_says_so(tmp_path: Path) -> None:
    code, rows = measured(tmp_path, "--minutes", "0")
    assert code == 1
    assert len(rows) == len(gpu.NAMES) + 1  # determinism has two rows
    assert {row.reason for row in rows.values()} == {NO_TIME}


@pytest.mark.rotating(of=6)
def test_a_cell_out_of_memory_says_so_and_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(size: Any, batch: Packed, device: torch.device) -> Update:
        if batch.name == "4k":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return our_update(size, batch, device)

    monkeypatch.setattr(gpu_cell, "our_update", small)
    code, rows = measured(tmp_path, "--only", "0.6B-4k", "0.6B-16k")
    assert code == 0
    assert rows["tiny, rows of 64: update"].reason == NO_MEMORY
    assert [row for row in rows if row.startswith("tiny, rows of 64")] == ["tiny, rows of 64: update"]
    assert rows["tiny, rows of 128: update"].ours > 0


def test_the_plain_loop_takes_as_many_rows_as_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    update = PaddedLoop.update

    most = 4

    def narrow(self: PaddedLoop, *batch: Any) -> float:
        if self._rows > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return update(self, *batch)

    monkeypatch.setattr(PaddedLoop, "update", narrow)
    facts = plain_update(TINY, SHORT, ENDLESS).facts()
    assert [facts["tried_seconds"][rows] for rows in ("16", "8")] == [NO_MEMORY] * 2
    assert facts["rows_side_by_side"] in (4, 2, 1)
    assert facts["tokens"] == SHORT.padded_tokens(facts["rows_side_by_side"])
    most = 0
    assert timed(lambda: plain_update(TINY, SHORT, ENDLESS), ENDLESS).failure == NO_MEMORY


def test_a_peer_that_fails_leaves_our_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Update:
        raise ValueError("no such kernel\nat all")

    monkeypatch.setattr(gpu_cell, "plain_update", broken)
    update, *_ = gpu_cell.cell(TINY, SHORT, ENDLESS, peak=1e12)
    assert update.ours > 0 and update.peer is None
    assert update.reason == "does not run: ValueError: no such kernel"


@pytest.mark.parametrize(("reached", "reasons"), [(False, 3), (True, 0)])
def test_on_cuda_goals_stand_and_what_falls_short_says_why(
    reached: bool, reasons: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"tokens": 100, "flops": 4e11 if reached else 1e11, "parameters": 2**26, "layers_read_again": True}
    ours = Timed((1.0,), 6.0 if reached else 6.1, Waits(3, {"a.py:1": 3}, ""), facts)
    plain = Timed((1.3 if reached else 1.2,), 10.0, Waits(9, {"b.py:1": 9}, ""), {"tokens": 250})
    monkeypatch.setattr(gpu_cell, "timed", lambda make, _: make())
    monkeypatch.setattr(gpu_cell, "our_update", lambda *_: ours)
    monkeypatch.setattr(gpu_cell, "plain_update", lambda *_: plain)
    monkeypatch.setattr(gpu_cell, "has_trl", lambda: False)
    cuda = replace(ENDLESS, device=torch.device("cuda"))
    rate, share, memory, waits = gpu_cell.cell(TINY, replace(SHORT, budget=4096), cuda, peak=1e12)
    assert [row.met for row in (rate, share, memory)] == [reached] * 3
    assert len([row for row in (rate, share, memory) if row.reason]) == reasons
    assert (waits.ours, waits.peer, waits.ratio, waits.at_least) == (3, 9, 3, None)
    if not reached:
        assert "2.50 times as many" in rate.reason
        assert "read again" in share.reason
        assert memory.reason.startswith("1.0 GiB")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_formula_of_published_figures_gives_the_published_share(kind: gpu_published.Kind) -> None:
    entries = 16 * 28 * (3 * (1024 + 3072) + 2 * (1024 + 2048) + 2 * (1024 + 1024))  # LoRA, rank 16, Qwen3-0.6B
    flops = flops_a_token(SIZES[0], UNBROKEN.budget, entries if kind.adapter else 0)
    assert 100 * flops * kind.figure.tokens_per_second / PEAK == pytest.approx(kind.figure.percent, abs=1e-3)
    assert UNBROKEN.tokens == kind.figure.tokens


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_work_of_published_figures_runs_tiny_and_is_compared_with_nothing(kind: gpu_published.Kind) -> None:
    step, share, *_ = rows = gpu.steps(tiny=True)[f"published-{kind.name}"](ENDLESS, 1e12)
    assert len(rows) == (6 if kind.copies else 4)
    assert all(row.ours > 0 and row.peer is None and row.at_least is None and "tiny" in row.reason for row in rows)
    assert [row.details["ours"]["layers_read_again"] for row in rows if row.details] == [True] * (
        len(rows) // 2 - 1
    ) + [False] * (len(rows) // 2 - 1)
    facts = step.details["ours"]
    assert (facts["parameters_that_learn"] < facts["parameters"]) == kind.adapter
    assert share.ours == pytest.approx(100 * facts["flops_a_token"] * step.ours / PEAK)


@pytest.mark.parametrize("faster", [False, True])
def test_a_published_figure_says_that_it_was_not_measured_here(faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"flops_a_token": 10**9}
    rl, *_ = KINDS
    ours = [Timed((rl.figure.step_seconds / (2.1 if faster else 1.9),), facts=facts), Timed(failure=NO_MEMORY)]
    monkeypatch.setattr(gpu_published, "timed", lambda *_: ours.pop(0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "card")
    cuda = replace(ENDLESS, device=torch.device("cuda"))
    step, share, counted, without = gpu_published.cell(rl, SIZES[0], UNBROKEN, cuda, published=True)
    assert (step.met, step.at_least, counted.at_least, share.at_least) == (faster, 2.0, None, None)
    assert step.peer == pytest.approx(16_447, abs=1) and counted.peer == 11_895.99
    assert share.ratio == pytest.approx(step.ratio)
    assert all("not run here" in row.against and "published" in row.measure for row in (step, share, counted))
    assert ("one NVIDIA H100 80GB HBM3" in step.reason and "card" in step.reason) is not faster
    assert (without.reason, without.at_least) == (NO_MEMORY, 2.0)


class Mode:
    """Replacement for torch's mode of warnings about waits for the device, which works without a device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: int | str = 2
        self.set: list[int | str] = []
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: self.now)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", self._take)

    def _take(self, mode: int | str) -> None:
        self.now = mode
        self.set.append(mode)


def waiting() -> None:
    for _ in range(3):
        warnings.warn(f"{SAYING} (Triggered internally)", stacklevel=1)
    warnings.warn("of something else", stacklevel=1)


def test_waits_are_the_warnings_of_waits_and_the_mode_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = Mode(monkeypatch)
    waits = waits_of(waiting, torch.device("cuda"))
    line = waiting.__code__.co_firstlineno + 2
    assert (waits.count, waits.places) == (3, {f"tests/benchmarks/test_gpu.py:{line}": 3})
    assert (mode.set, mode.now) == (["warn", 2], 2)


def test_a_step_that_fails_while_it_is_counted_puts_the_mode_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = Mode(monkeypatch)
    with pytest.raises(ZeroDivisionError), counted([]):
        1 / 0  # noqa: B018
    assert mode.now == 2
    waits = waits_of(lambda: 1 / 0, torch.device("cuda"))
    assert waits.count is None and "ZeroDivisionError" in waits.failure
    assert gpu_waits.waits_of(waiting, CPU).count is None


def test_a_profile_is_of_the_operations_own_time() -> None:
    wide, narrow = torch.ones(512, 512), torch.ones(8)
    operations, whole = operations_of(lambda: [wide @ wide for _ in range(4)] + [narrow + 1], CPU)
    assert [(operation.name, operation.calls) for operation in operations[:1]] == [("aten::mm", 4)]
    assert sum(operation.seconds for operation in operations) == pytest.approx(whole)
    assert lines_of(Row("a", 1.0, None, "s", None, None, False, details={"profile": {"failure": "no"}})) == [
        "a: no profile: no"
    ]


def test_an_operation_that_refuses_deterministic_mode_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*cell: Any) -> Update:
        update = our_update(*cell)

        def step() -> None:
            if torch.are_deterministic_algorithms_enabled():
                raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but")
            update.step()

        return replace(update, step=step)

    monkeypatch.setattr(gpu_determinism, "our_update", refusing)
    for row in determinism_cell(TINY, SHORT, ENDLESS):
        assert "cumsum_cuda_kernel does not have a deterministic implementation" in row.reason
    assert not torch.are_deterministic_algorithms_enabled()


def test_weights_that_differ_by_a_bit_are_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def drifting(*cell: Any) -> Update:
        update = our_update(*cell)
        runs.append(update)

        def step() -> None:
            weight = next(update.model.parameters()).data
            weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(torch.inf)) if len(runs) == 2 else weight[0, 0]

        return replace(update, step=step)

    monkeypatch.setattr(gpu_determinism, "our_update", drifting)
    row = gpu_determinism._sameness(TINY, SHORT, ENDLESS)
    assert not row.met and row.reason.startswith("1 of ")


def test_deterministic_mode_ends_with_an_error_inside() -> None:
    with pytest.raises(ValueError, match="inside"), deterministic():
        assert torch.are_deterministic_algorithms_enabled()
        raise ValueError("inside")
    assert not torch.are_deterministic_algorithms_enabled()


def test_cells_come_in_the_order_of_what_they_say() -> None:
    published = ("published-rl", "published-sft", "published-lora")
    assert gpu.NAMES[:9] == (
        "0.6B-4k", "0.6B-16k", *published, "compile", "determinism", "1.7B-4k", "1.7B-16k"
    )  # fmt: skip
    assert tuple(gpu.steps(tiny=True)) == gpu.NAMES
    every = gpu.cells(tiny=False)
    missed = Row(f"{gpu_cell.update_name(*every['1.7B-tail'])}", 1.0, 1.0, "", 1.0, 1.3, False)
    assert next(iter(gpu.by_need(every, [missed]))) == "1.7B-tail"


@pytest.mark.slow
@pytest.mark.thorough
def test_it_goes_through_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--repeats", "1", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = read(out)
    engine = [row for row in rows if ", engine" in row.measure]
    assert engine[0].measure.endswith("hand-over") and all(row.ours > 0 for row in engine)
    updates = [row for row in rows if row.measure.endswith(": update")]
    assert len(updates) == 10 and all(row.ours > 0 and row.peer for row in updates)
