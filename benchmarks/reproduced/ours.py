"""Our side of an experiment: `rewardflow run` with the experiment's recipe in a state folder of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reproduced.experiments import Experiment, Stage
from benchmarks.reproduced.processes import ProcessUsage, run
from models.base.errors import UserError
from models.policies.base_models.store import FOLDER, folder_of

BASE = "smollm2-135m-instruct"
FOLDERS: Mapping[Stage, str] = {"warm_start": "policy", "fine_tune": "policy", "reward_model": "reward_model"}
CURVE = ("reward/total", "rollouts/length", "policy/pair_accuracy", "policy/loss", "policy/entropy")
"""Metrics of the rounds that are kept."""


@dataclass(frozen=True)
class SideOutputs:
    """Results of a run of a side."""

    folders: Mapping[Stage, Path]
    """Stage -> folder of its model."""
    seconds: Mapping[str, float]
    """Wall time by stage."""
    peak_gib: float
    curve: Mapping[str, tuple[float, ...]]
    weights: str = ""
    """Digest of the last stage's weights."""


def train(
    experiment: Experiment, seed: int, files: tuple[Path, Path], home: Path, *, kill: bool = False
) -> SideOutputs:
    """Run the recipe to its end; with `kill`, kill it once in the middle and run the same command again.

    Args:
        files: rows to train on and rows that are held out.
        home: the state folder, which is made.
    """
    home.mkdir(parents=True, exist_ok=True)
    bases = home / FOLDER
    if not bases.exists():
        bases.symlink_to(folder_of(BASE).parent, target_is_directory=True)
    command = [sys.executable, "-m", "flows.command_line", "run", experiment.recipe]
    given = (f"seed={seed}", f"data.path={files[0]}", f"data.test_path={files[1]}", "promote_unpinned=true")
    for setting in (*given, *experiment.overrides):
        command += ["--set", setting]
    settings = {"REWARDFLOW_HOME": str(home)}
    log, runs = home / "run.log", []
    if kill:
        runs.append(run(command, settings, log, kill_when=lambda: list(home.glob(experiment.kill_at))))
        if not runs[0].killed:
            raise UserError(f"{log}: the run ended before {experiment.kill_at} was there, and was not killed")
    runs.append(run(command, settings, log))
    return _made(experiment, home, runs)


def _made(experiment: Experiment, home: Path, runs: list[ProcessUsage]) -> SideOutputs:
    results = [(file.parent, json.loads(file.read_text())) for file in home.glob("store/*/*/result.json")]
    by_step: dict[str, tuple[Path, Any]] = {result["step"]: (folder, result) for folder, result in results}
    folders: dict[Stage, Path] = {"base": folder_of(BASE)}
    for stage in experiment.stages:
        if stage != "base":
            folders[stage] = by_step[stage][0] / FOLDERS[stage]
    seconds = {name: by_step[name][1]["seconds"] for name in FOLDERS if name in by_step}
    seconds["whole run"] = sum(ended.seconds for ended in runs)
    last = by_step[experiment.stages[-1]][1]
    return SideOutputs(folders, seconds, max(ended.peak_gib for ended in runs), _curve(by_step), last["digest"])


def _curve(by_step: Mapping[str, tuple[Path, Any]]) -> dict[str, tuple[float, ...]]:
    """Map each metric to its value in each round."""
    if "fine_tune" not in by_step:
        return {}
    lines = (by_step["fine_tune"][0] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = {line["step"]: line["metrics"] for line in map(json.loads, lines) if "reward/total" in line["metrics"]}
    return {
        name: tuple(values)
        for name in CURVE
        if (values := [rounds[step][name] for step in sorted(rounds) if name in rounds[step]])
    }
