"""OpenMP's idle threads spin only briefly, however torch is loaded, because long spins slow other processes."""

import os
import subprocess
import sys

import pytest

ENTRIES = ("flows.command_line", "flows.train", "tasks.runner.step", "benchmarks.shared.alternate",
           "benchmarks.gpu", "models.training.loop")  # fmt: skip
AT_TORCH = """
import importlib, os, sys
class Seen:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("spin", os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Seen())
importlib.import_module(sys.argv[1])
print("spin", os.environ.get("GOMP_SPINCOUNT"))
"""


def spin_at_torch(entry: str, **settings: str) -> str:
    """Return the spin count that is set when `entry` begins to load torch, or at its end if it never does."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", AT_TORCH, entry], env=kept | settings, capture_output=True, text=True, check=True
    )
    return done.stdout.split("spin ")[1].strip()


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_spin_is_short_before_torch_is_loaded(entry: str) -> None:
    assert spin_at_torch(entry) == "2000"


def test_what_the_user_has_set_stays() -> None:
    assert spin_at_torch("models.training.loop", GOMP_SPINCOUNT="7") == "7"
    assert spin_at_torch("models.training.loop", OMP_WAIT_POLICY="PASSIVE") == "None"
