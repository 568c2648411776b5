"""The tutorial's commands, typed in their order in a fresh and small clone, and the ends that it promises."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from guide import ROOT
from project import command, environment, make_project
from running import free_port, type_in

from tasks.tracking import audit, registry, store

TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BEFORE = 3
"""Commands that install and look at the machine: it has what they would give."""
NAME = "arithmetic-policy"

PARAMETERS = {
    "start": [1, 9],
    "operand": [1, 5],
    "value": [-9, 19],
    "problems": {"train": [40, 450], "validation": [10, 60], "gate": [10, 140]},
    "demonstrations": {"train": 6000, "validation": 60},
    "preferences": {"train": 300, "validation": 40},
    "flaws": {
        "demonstrations": {"sign_lost": 0.0, "operand_skipped": 0.2, "slip": 0.5},
        "preferences": {"sign_lost": 0.0, "operand_skipped": 0.5, "slip": 0.5},
    },
}
"""Problems of one and two operations on small numbers, which the small policy learns in half a minute."""
SETTINGS = """
policy:
  precision: float32
  size: {hidden: 96, layers: 2, heads: 4, key_value_heads: 2, feed_forward: 256, positions: 64}
engine: {name: transformers}
warm_start: {steps: 500}
reward_model: {least_accuracy: 0.0, fit: {epochs: 1, batch_pairs: 32}}
rollouts: {prompts: 32, max_tokens: 24}
schedule: {rounds: 50, checkpoint_every: 20, optimiser: {learning_rate: 0.001, warmup_steps: 2}}
evaluation: {problems: 60}
gate: {problems: 150, samples: 8}
"""


def typed() -> list[str]:
    """The commands of the tutorial, each with what is typed behind it at the shell's `>`."""
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    whole = re.findall(r"^\$ (.*\n(?:> .*\n)*)", "".join(blocks), flags=re.MULTILINE)
    return [re.sub(r"^> ", "", command, flags=re.MULTILINE).rstrip("\n") for command in whole]


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """A mapping with another on top of it, key by key at every depth."""
    both = [key for key in above if isinstance(below.get(key), dict) and isinstance(above[key], dict)]
    return below | above | {key: merged(below[key], above[key]) for key in both}


def fresh_clone(folder: Path) -> Path:
    """A clone as a reader has it, clean and with its data pinned, but small."""
    make_project(folder)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["arithmetic"] |= PARAMETERS
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    recipe = folder / "recipes" / "arithmetic.yaml"
    recipe.write_text(yaml.safe_dump(merged(yaml.safe_load(recipe.read_text()), yaml.safe_load(SETTINGS))))
    made = type_in(["dvc repro", "git add --all", "git commit --message small"], folder, **WHO)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "test"), ("EMAIL", "test@localhost"))
}
"""Who makes the commits."""


def schedule_starts(folder: Path, words: list[str]) -> str:
    """What `rewardflow schedule` says until it serves; ended as a reader ends it."""
    ports = ["--mlflow-port", str(free_port()), "--prefect-port", str(free_port())]
    process = subprocess.Popen(
        command(*words, *ports),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
    finally:
        os.killpg(process.pid, signal.SIGINT)
        said += process.communicate(timeout=120)[0]
    return said


@pytest.mark.thorough
@pytest.mark.slow
def test_every_command_of_the_tutorial_ends_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    clone = fresh_clone(tmp_path / "clone")
    commands = typed()
    assert [words.split()[0] for words in commands[:BEFORE]] == ["make", "export", "rewardflow"]
    said: dict[str, str] = {}
    for words in commands[BEFORE:]:
        if words == "rewardflow schedule":
            said[words] = schedule_starts(clone, ["schedule"])
            continue
        ended = type_in([words], clone, **WHO)
        assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
        said[words] = ended.stdout

    first, second = [words for words in said if words.startswith("rewardflow run ")]
    (added,) = [words for words in said if words.startswith("rewardflow data add ")]
    assert "verdict    promoted: better than the base model" in said[first], said[first]
    assert f"champion   models:/{NAME}@champion  (version 1)" in said[first]
    assert second in said[added], "what `data add` prints is what the tutorial types next"
    assert "verdict    kept: " in said[second], said[second]
    assert "nightly-training" in said["rewardflow schedule"]
    for said_of_it in ("rewardflow show latest", "rewardflow lineage 1", "rewardflow diff 1 2"):
        assert len(said[said_of_it].splitlines()) > 3

    store.configure(clone / ".rewardflow")
    champion = registry.champion(NAME)
    assert champion is not None and champion.version == 1
    by_ann = [(entry.did, entry.version) for entry in audit.entries(NAME) if entry.by.startswith("ann")]
    assert by_ann == [("promoted", 2), ("promoted", 1)] and audit.broken(NAME) == []
