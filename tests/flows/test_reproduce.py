"""`rewardflow reproduce` as a command: a fresh clone trains the same weights, without a new run or version."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from project import Project, Ran, make_project, rewardflow
from running import Pair
from test_data_command import SOMEBODY

from tasks.runner.contents import content_of_files
from tasks.tracking import registry, store, tags

WHO = ("-c", "user.name=test", "-c", "user.email=test@localhost")


def registered(home: Path) -> list[tuple[str, int, tuple[str, ...]]]:
    store.configure(home)
    return [
        (version.name, version.version, version.aliases)
        for name in registry.model_names()
        for version in registry.versions(name)
    ]


def runs_there(home: Path) -> int:
    store.configure(home)
    client = store.client()
    experiments = [entry.experiment_id for entry in client.search_experiments()]
    return len(client.search_runs(experiments, max_results=1000))


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_where_the_work_tree_differs_it_is_refused_in_one_line_and_nothing_is_made(
    project: Project, first: Ran, configured: None
) -> None:
    before = registered(first.home)
    status, said, errors = project.ask("reproduce", "1")
    assert (status, said) == (2, "")
    assert errors.startswith("error: tiny-policy version 1") and errors.count("\n") == 1
    assert registered(first.home) == before and not (first.home / "reproductions").exists()
    assert project.ask("reproduce", first.run_id)[0] == project.ask("reproduce", "77")[0] == 2


@pytest.mark.thorough
@pytest.mark.slow
def test_a_fresh_clone_makes_the_same_weights_and_other_weights_are_told(
    servers: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    origin, clone = make_project(tmp_path / "origin"), tmp_path / "clone"
    home = origin / ".rewardflow"
    settings = {"OMP_NUM_THREADS": "1", "REWARDFLOW_HOME": str(home), "PREFECT_API_URL": f"{servers.prefect}/api"}
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # DVC's stages call python
    dvc = [sys.executable, "-m", "dvc", "repro", "--quiet"]
    subprocess.run(dvc, cwd=origin, env={**os.environ, "PATH": beside}, check=True)
    subprocess.run(["git", "add", "--all"], cwd=origin, check=True)
    subprocess.run(["git", *WHO, "commit", "--quiet", "--message", "data"], cwd=origin, check=True)
    sums = tmp_path / "sums.jsonl"
    sums.write_text("\n".join(json.dumps({"prompt": f"{n} + 1", "answer": str(n + 1)}) for n in range(60)))
    held_out = ("--held-out", "sums", "--set", "gate.held_out.sums.format=problems")
    added = rewardflow(origin, "data", "add", str(sums), "--recipe", "tiny", *held_out, **settings, **SOMEBODY)
    assert added.returncode == 0, added.stdout + added.stderr
    ended = rewardflow(origin, *shlex.split(added.stdout.splitlines()[-1])[1:], **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    before = registered(home), runs_there(home)

    subprocess.run(["git", "clone", "--quiet", origin, clone], check=True)
    (clone / ".dvc/config.local").write_text(f"['remote \"local\"']\n    url = {home / 'dvc-remote'}\n")
    made = rewardflow(clone, "reproduce", "1", "--json", **settings)
    assert made.returncode == 0, made.stdout + made.stderr
    said = json.loads(made.stdout)
    assert said["identical"] and said["recorded_sha256"] == said["made_sha256"] and said["compared"] > 5
    assert said["recipe"] == said["packages"] == said["machine"] == said["gaps"] == said["files"] == []
    assert len(pd.read_parquet(clone / "data/prepared/sums/problems_gate.parquet")) == 60
    assert (registered(home), runs_there(home)) == before and not any((home / "reproductions").iterdir())

    version = registry.version_info("tiny-policy", 1)
    assert registry.facts_of(version)[tags.REPRODUCED].startswith("identical to the bit, ")
    assert "### Trained again\n\nidentical to the bit, " in version.description

    # Changed files are refused. If the changed weights are recorded as the version's, the comparison reports it.
    folder = registry.fetch(version.uri)
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = max(tensors, key=lambda key: tensors[key].numel())
    with torch.no_grad():
        tensors[name].view(-1)[5] += 0.5
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    refused = rewardflow(clone, "reproduce", "1", **settings)
    assert refused.returncode == 2 and "are not what was registered" in refused.stdout + refused.stderr
    digest = content_of_files(folder).removeprefix("sha256:")
    store.client().set_model_version_tag("tiny-policy", "1", tags.WEIGHTS_SHA256, digest)
    made = rewardflow(clone, "reproduce", "1", "--keep", **settings)
    assert made.returncode == 1, made.stdout + made.stderr
    assert f"{name}: 1 of {tensors[name].numel():,} numbers, by at most 0.5" in made.stdout
    assert "1 of " in made.stdout and made.stdout.rstrip().endswith("differs")
    version = registry.version_info("tiny-policy", 1)
    assert registry.facts_of(version)[tags.REPRODUCED].startswith("differs: 1 of ")
    assert "identical to the bit" not in version.description
    (kept,) = (home / "reproductions").iterdir()
    shutil.rmtree(kept)
