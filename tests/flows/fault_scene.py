"""Runs with real injected faults, and the comparison of their results with those of a run without a fault.

A test that needs time slows the reward down. The reward is a file of the recipe and waits for the seconds in an
environment variable, so that the recipe, and with it the weights, do not depend on how long it waits.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from project import command, environment, make_project
from running import wait_for

ROUNDS = 8
RECIPE = f"""
extends: tiny
name: faulty
rewards:
  - {{name: reward_model, weight: 0.2}}
  - {{name: python, path: slow_reward.py, label: shortness}}
select: {{name: all}}
schedule: {{rounds: {ROUNDS}, checkpoint_every: 1, samples_every: 2}}
"""
REWARD = '''
import gc
import os
import time

rounds = 0

def reward(completions):
    """Reward short completions. REWARD_FAULT selects the fault, which occurs at a fixed round."""
    global rounds
    rounds += 1  # the first call tries it, before the flow begins
    time.sleep(float(os.environ.get("REWARD_PAUSE", "0")))
    wrong = os.environ.get("REWARD_FAULT", "")
    if wrong and rounds == 4:
        if wrong == "throws":
            raise ConnectionError("the grader is away")
        if wrong == "hangs":
            time.sleep(600)
        if wrong == "starves":  # the machine has no memory left from here on
            import resource

            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
        if wrong == "nan":
            return [float("nan") for _ in completions]
        if wrong == "poisons":  # as a flipped bit in memory: one number of the policy that learns
            from torch import nn

            weights = [thing for thing in gc.get_objects() if isinstance(thing, nn.Parameter) and thing.requires_grad]
            for weight in weights:
                weight.data.view(-1)[0] = float("nan")
    return [-float(len(text)) for text in completions]
'''
Ask = Callable[[str], list[tuple[Any, ...]]]
"""Function that returns the rows of a query."""
KeepRow = Callable[[tuple[str, ...]], None]


@dataclass(frozen=True)
class Made:
    """Results of a run that must not depend on the faults during the run."""

    weights: str
    """Hash of the trained policy."""
    registered: tuple[tuple[Any, ...], ...]
    """Name, version and hash of each registered model; empty if other runs use the registry too."""
    rewards: tuple[tuple[Any, ...], ...]
    """The reward curve in the tracking store: round and value of each point."""


@dataclass
class Scene:
    """A project, the servers of its runs, and the results of its undisturbed run."""

    clone: Path
    below: Path
    """Folder in which state folders are made."""
    extra: dict[str, str]
    """Environment variables in addition to those of a shell."""
    keep_row: KeepRow
    """Function that keeps the row of the injected fault for the table."""
    made: Made | None = None
    seconds: float = 0.0
    """Duration of the undisturbed run."""
    ask: Ask | None = None
    """Function that queries MLflow's database; None if the database is in the state folder."""
    homes: int = 0

    def home(self) -> Path:
        """Make a new state folder."""
        self.homes += 1
        folder = self.below / f"home{self.homes}"
        folder.mkdir(parents=True)
        return folder

    def start(self, home: Path, *overrides: str, **extra: str) -> "subprocess.Popen[str]":
        """Start `rewardflow run` in its own process group, with its output in `home`.log."""
        with self.log(home).open("a") as words:
            return subprocess.Popen(
                command("run", "faulty", *overrides),
                cwd=self.clone,
                env=self.environment(home, **extra),
                stdout=words,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def environment(self, home: Path, **extra: str) -> dict[str, str]:
        """Return the environment of a command on the state folder `home`, without empty variables."""
        given = self.extra | {"REWARDFLOW_HOME": str(home), "OMP_NUM_THREADS": "1"} | extra
        return environment(**{name: value for name, value in given.items() if value})

    def command(self, *arguments: str, home: Path) -> tuple[int, str]:
        """Run another command on a state folder. Return its exit status and its output."""
        ended = subprocess.run(
            command(*arguments), cwd=self.clone, env=self.environment(home), capture_output=True, text=True, timeout=120
        )
        return ended.returncode, ended.stdout + ended.stderr

    def log(self, home: Path) -> Path:
        """Return the file with the output of the runs in `home`."""
        return home.with_name(f"{home.name}.log")

    @contextmanager
    def running(self, home: Path, *overrides: str, **extra: str) -> "Iterator[subprocess.Popen[str]]":
        """Start a run. If it has not ended by the end of the block, kill its process group."""
        process = self.start(home, *overrides, **extra)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def finish(self, home: Path, *overrides: str, **extra: str) -> str:
        """Run to the end. Return the output of this run."""
        before = self.log(home).stat().st_size if self.log(home).exists() else 0
        process = self.start(home, *overrides, **extra)
        code = process.wait(timeout=300)
        said = self.log(home).read_text()[before:]
        assert code == 0, said
        return said

    def same_as_undisturbed(self, fault: str, home: Path, line: str, seconds: float) -> None:
        """Check that the results of the disturbed run equal those of the undisturbed one, and keep the fault's row.

        Args:
            fault: its description.
            home: state folder of the disturbed run, which has ended successfully.
            line: the line that was shown.
            seconds: duration of the disturbed run and the run that continued it.
        """
        assert self.made is not None
        assert made_in(home, self.ask) == self.made
        assert "Traceback" not in self.log(home).read_text()
        lost = max(0.0, seconds - self.seconds)
        self.row(fault, line, f"{lost:.0f}")

    def row(self, fault: str, line: str, lost: str, weights: str = "identical") -> None:
        """Keep the row of a fault. Folders of this machine are removed from its line."""
        for folder in (self.below, self.clone):
            line = line.replace(str(folder), "...")
        shown = line.replace("|", "\\|")
        self.keep_row((fault, f"`{shown}`" if line else "none", weights, lost))


def made_in(home: Path, ask: Ask | None = None) -> Made:
    """Return the results of the only training in a state folder.

    Args:
        home: the state folder.
        ask: queries MLflow's database; None: the database in the folder, whose registry has only this training.
    """
    (result,) = [json.loads(file.read_text()) for file in home.glob("store/fine_tune/*/result.json")]
    if ask is None:
        with closing(sqlite3.connect(home / "mlflow.db")) as database:
            own = partial(_rows, database)
            assert not own("select run_uuid from runs where status = 'RUNNING'")
            registered = own(
                "select name, version, value from model_version_tags"
                " where key = 'rewardflow.weights_sha256' order by 1, 2"
            )
            return Made(result["digest"], tuple(registered), _curve(own, result["run_id"]))
    return Made(result["digest"], (), _curve(ask, result["run_id"]))


def _rows(database: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return database.execute(query).fetchall()


def _curve(ask: Ask, run: str) -> tuple[tuple[Any, ...], ...]:
    query = f"select step, value from metrics where run_uuid = '{run}' and key = 'reward/total' order by step"
    curve = tuple(map(tuple, ask(query)))
    assert [step for step, _ in curve] == list(range(1, ROUNDS + 1)), "the curve has every round once"
    return curve


def line_in(said: str, pattern: str) -> str:
    """Return the last line that matches, without its time and level."""
    lines = [line for line in said.splitlines() if re.search(pattern, line)]
    assert lines, said
    return re.sub(r"^[\d:.]+ \| \w+ *\| .*? - ", "", lines[-1]).strip()


def open_scene(below: Path, extra: dict[str, str], keep_row: KeepRow, ask: Ask | None = None) -> Scene:
    """Make a project and its undisturbed run.

    Args:
        below: an empty folder.
        extra: environment variables of all its runs.
        keep_row: see `Scene`.
        ask: see `Scene`.
    """
    clone = make_project(below / "clone")
    (clone / "recipes/faulty.yaml").write_text(RECIPE)
    (clone / "recipes/slow_reward.py").write_text(REWARD)
    scene = Scene(clone, below, extra, keep_row, ask=ask)
    scene.finish(scene.home())  # prepares the data, which the timed run reuses
    home, began = scene.home(), time.monotonic()
    scene.finish(home)
    scene.made, scene.seconds = made_in(home, ask), timed(began)
    return scene


def kill_at(process: "subprocess.Popen[str]", there: Callable[[], object], what: str) -> None:
    """Wait until `there` is true, then kill the flow alone, as the kernel does when memory runs out."""
    wait_for(what, there, process)
    process.kill()
    process.wait()


def timed(began: float) -> float:
    """Return the seconds since `began`."""
    return time.monotonic() - began


def seen(home: Path, pattern: str) -> Callable[[], object]:
    """Return a function that lists the paths in a state folder that match a pattern."""
    return lambda: list(home.glob(pattern))
