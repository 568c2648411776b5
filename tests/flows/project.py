"""A small project for tests of flows: a git and DVC repository with the code, few rows and one tiny recipe.

The code is copied too: the stages of dvc.yaml depend on it, and the key of a step contains its hash.
"""

import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from running import ROOT, shell

from flows.command_line import main
from models.policies.folder import save_model_folder
from tasks.runner.results import RESULT
from tasks.tracking import store, summaries
from tests.support.tiny_models import tiny_policy, word_tokenizer

TINY = """
extends: arithmetic
policy:
  precision: float32
  size: {hidden: 64, layers: 1, heads: 2, key_value_heads: 1, feed_forward: 128, positions: 128}
engine: {name: transformers}   # vLLM's start would cost every run more than the rest of it
warm_start: {steps: 15, batch: 16}
reward_model: {least_accuracy: 0.0, fit: {epochs: 1, batch_pairs: 16}}
rollouts: {name: sample, prompts: 4, group_size: 4, max_tokens: 24}
select: {name: drop_flat, by: total}   # so little trained, it answers nothing right; the reward model still differs
schedule: {rounds: 4, checkpoint_every: 1, samples_every: 2}
evaluation: {problems: 12, samples: 16}
promote_unpinned: true   # the project has no committed dvc.lock
gate: {problems: 12, samples: 4}
"""

FEW = {
    "problems": {"train": [20, 60, 60, 60], "validation": [6, 8, 8, 8, 5], "gate": [6, 6, 6, 6, 6]},
    "demonstrations": {"train": 300, "validation": 40},
    "preferences": {"train": 80, "validation": 40},
}


def run_here(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process. Return exit status, output and error output."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.argv", ["rewardflow", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    for number, handler in handlers.items():  # the command's handlers would end the tests without a report
        signal.signal(number, handler)
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def with_model_folders(words: Sequence[str], folder: Path) -> list[str]:
    """Return arguments in which A and B are model folders of one vocabulary, and OTHER is one of another."""
    sizes = {"A": 24, "B": 24, "OTHER": 32}
    for name, vocabulary in sizes.items():
        save_model_folder(tiny_policy(torch.float32, vocabulary=vocabulary), word_tokenizer(), folder / name)
    return [str(folder / word) if word in sizes else word for word in words]


def make_project(folder: Path) -> Path:
    """Fill `folder` with the files of a clone, parameters for few rows and recipes/tiny.yaml, and commit them."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("flows", "tasks", "models", "recipes", "data/expectations"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("dvc.yaml", "params.yaml", "prefect.yaml", "pyproject.toml", ".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, folder / ".dvc" / name)
    for gitignore in ("data/.gitignore", "data/raw/.gitignore", "data/prepared/.gitignore"):
        if (ROOT / gitignore).is_file():
            (folder / gitignore).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / gitignore, folder / gitignore)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["arithmetic"] |= FEW
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "recipes" / "tiny.yaml").write_text(TINY)
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "a project"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a user's shell plus `extra`."""
    return {**shell(), "PYTHONUNBUFFERED": "1", **extra}


def command(*arguments: str) -> list[str]:
    """Return the command `rewardflow ARGUMENTS`, which runs the code of the working directory."""
    return [sys.executable, "-m", "flows.command_line", *arguments]


def rewardflow(project: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `rewardflow ARGUMENTS` in `project` with the environment variables `extra`."""
    return subprocess.run(
        command(*arguments), cwd=project, env=environment(**extra), capture_output=True, text=True, timeout=300
    )


@dataclass(frozen=True)
class Ran:
    """One successful `rewardflow run`."""

    home: Path
    out: str
    err: str
    commit: str
    """The commit at the start of the run: other tests of the session commit data to the same project."""
    prepared: bool = False
    """Whether another test of the session had already prepared the data."""

    @property
    def table(self) -> dict[str, str]:
        """Step -> "run" or "reused", from the closing table."""
        rows = re.findall(r"^(\w[\w ]*?) +\d+\.\d  (run|reused) ", self.out, flags=re.MULTILINE)
        return dict(rows)

    @property
    def run_id(self) -> str:
        """Id of the MLflow run whose address is printed last."""
        return re.findall(r"/runs/([0-9a-f]{32})", self.out)[-1]

    def child(self, step: str) -> Any:
        """Return the MLflow run of a step, with its inputs."""
        summary = summaries.run_summary("tiny", self.run_id)
        (line_of_step,) = [line for line in summary.steps if line.name == step]
        return store.client().get_run(line_of_step.run_id)


@dataclass(frozen=True)
class Unchanged:
    """A run with the same inputs as the run before it."""

    ran: Ran
    written: set[str]
    """Entries of `files_below` for `store` of the state folder that differ before and after the run."""


def files_below(folder: Path) -> set[str]:
    """Return the files below a folder with their time of change; results, whose time is the last use, with content."""
    return {
        f"{file.relative_to(folder)} {file.read_text() if file.name == RESULT else file.stat().st_mtime_ns}"
        for file in folder.rglob("*")
        if file.is_file()
    }


@dataclass(frozen=True)
class Project:
    """The project folder and the Prefect server that most of its runs use."""

    folder: Path
    prefect: str

    @property
    def home(self) -> Path:
        return self.folder / ".rewardflow"

    def settings(self, home: Path | None = None, own_server: bool = False) -> dict[str, str]:
        # One thread: the matrices are tiny, and two runs at once must not wait for each other's threads.
        server = {} if own_server else {"PREFECT_API_URL": f"{self.prefect}/api"}
        return {"OMP_NUM_THREADS": "1", "REWARDFLOW_HOME": str(home or self.home), **server}

    def copy_home(self, target: Path) -> Path:
        """Copy the state folder. Runs on the copy reuse its results and do not change the original."""
        elsewhere = shutil.ignore_patterns("run.lock", "servers.json", "prefect", "checkpoints")
        return shutil.copytree(self.home, target, ignore=elsewhere)

    def ask(self, *arguments: str, home: Path | None = None) -> tuple[int, str, str]:
        """Run a command that starts no process, in this process. Return exit status, output and error output."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr("os.environ", environment(**self.settings(home)))
            return run_here(*arguments)

    def run(self, *overrides: str, own_server: bool = False) -> Ran:
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=self.folder, text=True).strip()
        prepared = (self.folder / "data/prepared/arithmetic/manifest.json").exists()
        ended = rewardflow(self.folder, "run", "tiny", *overrides, **self.settings(own_server=own_server))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return Ran(self.home, ended.stdout, ended.stderr, commit, prepared)

    def start(self, *overrides: str, home: Path, log: Path, own_server: bool = False) -> subprocess.Popen[str]:
        """Start a run in its own process group, with its output in `log`. The caller ends it."""
        with log.open("w") as words:
            return subprocess.Popen(
                command("run", "tiny", *overrides),
                cwd=self.folder,
                env=environment(**self.settings(home, own_server)),
                stdout=words,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )


def flow_of(project: Project, module: str, function: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call a flow function as a deployment does: by its entrypoint, in a separate process."""
    code = f"from flows.{module} import {function}; print('returned', {function}('tiny'))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env=environment(**project.settings(home)),
        capture_output=True,
        text=True,
        timeout=300,
    )
