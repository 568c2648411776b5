"""Overhead of the flow: wall time of 100 rounds of fine-tuning of the main recipe less its compute, over its compute.

The whole flow is run by its command, in a copy of the project with a state folder of its own. The wall time is that of
the fine-tuning in the flow's own table: Prefect's task, MLflow's run, opening models and engine, every round, logging,
checkpoints, saving and registering the policy. Its compute is the sum of the rounds' stretches generate, score, learn
and hand over. One run: the table of rounds is its own hundred samples.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from tasks.tracking.journal import read_journal

AT_MOST = 0.05
SHORT = (
    "the rounds lose less than 1 % to logging and checkpoints (details: seconds_by_part); the rest is paid once however"
    " many rounds there are: starting vLLM, opening and proving the models, registering the policy"
)
"""Reason why the target is missed, if it is."""

ROOT = Path(__file__).resolve().parents[2]
COMPUTE = ("generate", "score", "learn", "hand_over")


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row; `ours` and `peer` are the seconds outside the compute, and those of the compute."""
    rounds = 4 if settings.quick else 100
    overrides = [
        f"schedule.rounds={rounds}",
        f"warm_start.steps={20 if settings.quick else 300}",
        f"evaluation.problems={12 if settings.quick else 60}",
        "reward_model.least_accuracy=0.0",
    ]
    with tempfile.TemporaryDirectory() as place:
        project = copy_of_the_project(Path(place) / "project")
        home = Path(place) / "home"
        command = [sys.executable, "-m", "flows.command_line", "run", "recipes/arithmetic.yaml"]
        command += [part for override in overrides for part in ("--set", override)]
        foreign = ("PREFECT_", "MLFLOW_", "REWARDFLOW_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        done = subprocess.run(
            command, cwd=project, env={**kept, "REWARDFLOW_HOME": str(home)}, capture_output=True, text=True
        )
        took = re.search(r"^fine_tune\s+([\d.]+)", done.stdout, flags=re.MULTILINE)
        if took is None:
            raise RuntimeError(f"the flow did not get through:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
        (journal,) = home.glob("store/fine_tune/*/metrics.jsonl")
        rows = [row.metrics for row in read_journal(journal) if "seconds/learn" in row.metrics]
    split: dict[str, float] = {}
    for metrics in rows:
        for key, value in metrics.items():
            if key.startswith("seconds/"):
                split[key] = split.get(key, 0.0) + value
    wall = float(took[1])
    compute = sum(split.get(f"seconds/{part}", 0.0) for part in COMPUTE)
    return [
        compare(
            f"flow overhead of {len(rows)} rounds of the main recipe: time other than compute, against the compute",
            [wall - compute],
            [compute],
            "s",
            1 / AT_MOST,
            smaller_is_better=True,
            short=SHORT,
            against="the compute",
            wanted="at most 5 %",
            details={
                "overhead_share": (wall - compute) / compute,
                "wall_seconds": wall,
                "seconds_by_part": split,
                "before_first_and_after_last_round": wall - sum(v for k, v in split.items() if k != "seconds/round"),
                "steps": _steps(done.stdout),
            },
        )
    ]


def copy_of_the_project(folder: Path) -> Path:
    """Copy the tracked and new files of the checkout to a new repository, so that the user's files do not change."""
    folder.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for line in listed.stdout.splitlines():
        if (ROOT / line).is_file():
            (folder / line).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / line, folder / line)
    who = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "the project"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def _steps(out: str) -> list[str]:
    """Return the flow's table of steps."""
    return re.findall(r"^\w[\w ]*?\s+[\d.]+\s+(?:run|reused).*$", out, flags=re.MULTILINE)
