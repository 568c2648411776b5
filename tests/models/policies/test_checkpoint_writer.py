"""Checkpoints written in the background: their content, memory, errors, and a kill during a write."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.policies import checkpoint_writer
from models.policies.checkpoint import load_checkpoint, newest_checkpoint, state_of, write_checkpoint
from models.policies.checkpoint_writer import CheckpointWriter

ROOT = Path(__file__).resolve().parents[3]


def model_of(value: float, width: int = 4) -> nn.Linear:
    model = nn.Linear(width, width)
    nn.init.constant_(model.weight, value)
    return model


def moments_of(model: nn.Module) -> dict[str, torch.optim.Optimizer]:
    return {"policy": build_optimiser(model, OptimiserSettings())}


def stepped(model: nn.Linear) -> dict[str, torch.optim.Optimizer]:
    moments = moments_of(model)
    model(torch.ones(4)).sum().backward()
    moments["policy"].step()
    return moments


def read_back(root: Path) -> tuple[int, nn.Linear]:
    checkpoint = newest_checkpoint(root)
    assert checkpoint is not None
    model = model_of(0.0)
    load_checkpoint(checkpoint, {"policy": model}, {})
    return checkpoint.round_number, model


def refuse(*args: object) -> Path:
    """Fail like a full disk."""
    raise UserError("round_000002: no space left to write it")


class Gate:
    """A gate that delays a write until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.begun = threading.Event(), threading.Event()
        write = write_checkpoint

        def held(*args: object) -> Path:
            self.begun.set()
            assert self.open.wait(30)
            return write(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(checkpoint_writer, "write_checkpoint", held)


def test_its_files_are_those_that_would_be_written_at_once(tmp_path: Path) -> None:
    model = model_of(0.5)
    moments = stepped(model)
    with CheckpointWriter(tmp_path / "behind") as writer:
        writer.save(3, {"policy": model}, moments, {"policy": 1}, {"tally.json": b"{}"})
    at_once = write_checkpoint(
        tmp_path / "at_once", 3, state_of({"policy": model}, moments), {"policy": 1}, {"tally.json": b"{}"}
    )
    behind = tmp_path / "behind" / "round_000003"
    assert sorted(path.name for path in behind.iterdir()) == sorted(path.name for path in at_once.iterdir())
    assert all((behind / path.name).read_bytes() == path.read_bytes() for path in at_once.iterdir())


def test_it_holds_what_the_model_was_when_it_was_asked_for_whatever_it_has_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, model = Gate(monkeypatch), model_of(1.0)
    with CheckpointWriter(tmp_path) as writer:
        writer.save(1, {"policy": model}, {}, {"policy": 1})
        assert gate.begun.wait(30) and not list(tmp_path.glob("round_*"))  # the loop continues; nothing is written yet
        nn.init.constant_(model.weight, 2.0)
        gate.open.set()
    number, kept = read_back(tmp_path)
    assert number == 1 and torch.equal(kept.weight, model_of(1.0).weight)


def test_the_next_checkpoint_waits_for_the_one_before_and_takes_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, model = Gate(monkeypatch), model_of(1.0)
    with CheckpointWriter(tmp_path) as writer:
        writer.save(1, {"policy": model}, {}, {"policy": 1})
        memory = writer._copies["policy"]["weight"].data_ptr()
        nn.init.constant_(model.weight, 2.0)
        threading.Timer(0.2, gate.open.set).start()
        writer.save(2, {"policy": model}, {}, {"policy": 2})
        assert (tmp_path / "round_000001").is_dir()  # written whole before its memory was reused
        assert writer._copies["policy"]["weight"].data_ptr() == memory
    first = newest_checkpoint(tmp_path)
    assert first is not None and first.round_number == 2
    assert torch.equal(read_back(tmp_path)[1].weight, model_of(2.0).weight)


def test_what_goes_wrong_behind_the_loops_back_is_raised_at_the_next_round_and_older_checkpoints_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(1.0)
    with pytest.raises(UserError, match="no space left"), CheckpointWriter(tmp_path) as writer:
        writer.save(1, {"policy": model}, {}, {"policy": 1})
        writer.wait()

        monkeypatch.setattr(checkpoint_writer, "write_checkpoint", refuse)
        writer.save(2, {"policy": model}, {}, {"policy": 2})
        for _ in range(300):
            writer.raise_failed()
            time.sleep(0.1)
    assert read_back(tmp_path)[0] == 1


def test_a_write_that_fails_last_of_all_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", refuse)
    with pytest.raises(UserError, match="no space left"), CheckpointWriter(tmp_path) as writer:
        writer.save(1, {"policy": model_of(1.0)}, {}, {"policy": 1})


def test_an_error_of_the_loop_is_not_hidden_by_one_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", refuse)
    with pytest.raises(ZeroDivisionError), CheckpointWriter(tmp_path) as writer:
        writer.save(1, {"policy": model_of(1.0)}, {}, {"policy": 1})
        raise ZeroDivisionError


def test_the_best_policy_is_given_back_as_it_was_kept(tmp_path: Path) -> None:
    model = model_of(1.0)
    with CheckpointWriter(tmp_path) as writer:
        writer.keep_best(model)
        nn.init.constant_(model.weight, 2.0)
        writer.restore_best(model)
    assert torch.equal(model.weight, model_of(1.0).weight)


KILLED = """
import sys, torch
from pathlib import Path
from torch import nn
from models.policies.checkpoint_writer import CheckpointWriter
model = nn.Linear(5000, 5000)
with CheckpointWriter(Path(sys.argv[1])) as writer:
    writer.save(1, {"policy": model}, {}, {"policy": 1})
    writer.wait()
    writer.save(2, {"policy": model}, {}, {"policy": 2})
    print("asked", flush=True)
    writer.wait()
    print("written", flush=True)
"""


@pytest.mark.rotating(of=6)
def test_a_kill_while_it_is_written_leaves_the_checkpoint_before_and_the_next_start_sweeps(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "asked\n"
    while not list(tmp_path.glob(".round_000002.*.part")) and not (tmp_path / "round_000002").exists():
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None and checkpoint.round_number == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")]
    write_checkpoint(tmp_path, 3, {"policy": {"weight": torch.ones(2)}}, {"policy": 3})
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")]
