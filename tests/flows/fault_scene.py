"""A run that faults are injected into, for real, and the same run that nothing disturbed: what may not differ.

Rewards are slowed down where a test needs time: the reward is a file of the recipe and waits as an environment variable
says, so that the content of the recipe, and so the weights, are the same however long it waits.
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
    """Shorter is better. The environment says what goes wrong, and in which round."""
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
"""Rows that a query gives."""
KeepRow = Callable[[tuple[str, ...]], None]


@dataclass(frozen=True)
class Made:
    """What a run leaves that may not hang on what happened to it."""

    weights: str
    """Hash of the trained policy."""
    registered: tuple[tuple[Any, ...], ...]
    """Name, version and hash of each registered model, where the registry is the run's own."""
    rewards: tuple[tuple[Any, ...], ...]
    """The reward curve in the tracking store: round, value."""


@dataclass
class Scene:
    """A project, the servers that its runs use, and what its undisturbed run made."""

    clone: Path
    below: Path
    """Where state folders are made."""
    extra: dict[str, str]
    """The environment beyond a shell's."""
    keep_row: KeepRow
    """Takes the row of the fault that the test injects, for the table."""
    made: Made | None = None
    seconds: float = 0.0
    """Of the undisturbed run."""
    ask: Ask | None = None
    """Queries MLflow's database, where it is not the state folder's own."""
    homes: int = 0

    def home(self) -> Path:
        """A new state folder."""
        self.homes += 1
        folder = self.below / f"home{self.homes}"
        folder.mkdir(parents=True)
        return folder

    def start(self, home: Path, *overrides: str, **extra: str) -> "subprocess.Popen[str]":
        """`rewardflow run` in its own process group; what it says goes to `home`.log."""
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
        """Of a command on the state folder `home`; what is empty in `extra` is left out."""
        given = self.extra | {"REWARDFLOW_HOME": str(home), "OMP_NUM_THREADS": "1"} | extra
        return environment(**{name: value for name, value in given.items() if value})

    def command(self, *arguments: str, home: Path) -> tuple[int, str]:
        """Exit status of another command on a state folder, and what it said."""
        ended = subprocess.run(
            command(*arguments), cwd=self.clone, env=self.environment(home), capture_output=True, text=True, timeout=120
        )
        return ended.returncode, ended.stdout + ended.stderr

    def log(self, home: Path) -> Path:
        """Where what runs in `home` say goes."""
        return home.with_name(f"{home.name}.log")

    @contextmanager
    def running(self, home: Path, *overrides: str, **extra: str) -> "Iterator[subprocess.Popen[str]]":
        """A run that ends with the block at the latest, and all that it started."""
        process = self.start(home, *overrides, **extra)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def finish(self, home: Path, *overrides: str, **extra: str) -> str:
        """Run to the end. Returns what that run said."""
        before = self.log(home).stat().st_size if self.log(home).exists() else 0
        process = self.start(home, *overrides, **extra)
        code = process.wait(timeout=300)
        said = self.log(home).read_text()[before:]
        assert code == 0, said
        return said

    def same_as_undisturbed(self, fault: str, home: Path, line: str, seconds: float) -> None:
        """Hold what the disturbed run made against the undisturbed one's, and keep the fault's row.

        Args:
            fault: in words.
            home: where the disturbed run ended well.
            line: what was shown.
            seconds: that the disturbed run and the one after it took together.
        """
        assert self.made is not None
        assert made_in(home, self.ask) == self.made
        assert "Traceback" not in self.log(home).read_text()
        lost = max(0.0, seconds - self.seconds)
        self.row(fault, line, f"{lost:.0f}")

    def row(self, fault: str, line: str, lost: str, weights: str = "identical") -> None:
        """Keep the row of a fault; folders of this machine are left out of its line."""
        for folder in (self.below, self.clone):
            line = line.replace(str(folder), "...")
        shown = line.replace("|", "\\|")
        self.keep_row((fault, f"`{shown}`" if line else "none", weights, lost))


def made_in(home: Path, ask: Ask | None = None) -> Made:
    """What the one training in a state folder made.

    Args:
        home: the state folder.
        ask: queries MLflow's database; None: it is the folder's own, whose registry holds this training alone.
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
    """The part of the last line that matches, without time and level."""
    lines = [line for line in said.splitlines() if re.search(pattern, line)]
    assert lines, said
    return re.sub(r"^[\d:.]+ \| \w+ *\| .*? - ", "", lines[-1]).strip()


def open_scene(below: Path, extra: dict[str, str], keep_row: KeepRow, ask: Ask | None = None) -> Scene:
    """A project with its undisturbed run behind it.

    Args:
        below: an empty folder.
        extra: environment of all its runs.
        keep_row: see `Scene`.
        ask: see `Scene`.
    """
    clone = make_project(below / "clone")
    (clone / "recipes/faulty.yaml").write_text(RECIPE)
    (clone / "recipes/slow_reward.py").write_text(REWARD)
    scene = Scene(clone, below, extra, keep_row, ask=ask)
    scene.finish(scene.home())  # makes the data
    home, began = scene.home(), time.monotonic()
    scene.finish(home)
    scene.made, scene.seconds = made_in(home, ask), timed(began)
    return scene


def kill_at(process: "subprocess.Popen[str]", there: Callable[[], object], what: str) -> None:
    """SIGKILL to the flow alone, as the kernel does where memory runs out, once something is there."""
    wait_for(what, there, process)
    process.kill()
    process.wait()


def timed(began: float) -> float:
    """Seconds since."""
    return time.monotonic() - began


def seen(home: Path, pattern: str) -> Callable[[], object]:
    """Whether something of this name is in a state folder."""
    return lambda: list(home.glob(pattern))
