"""A user's mistake gives one clear line and exit status 1, and leaves no partial files."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from project import make_project, rewardflow
from running import Pair

from flows.command_line import main
from models.base.errors import UserError
from models.datasets.settings import DataSettings
from models.policies.checkpoint import newest_checkpoint, state_of, write_checkpoint
from tasks.data import versions
from tasks.tracking import store, summaries

pytestmark = pytest.mark.rotating(of=6)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_project(tmp_path_factory.mktemp("project") / "clone")
    rows = [{"prompt": f"Add {i} to {i} .", "completion": f"#### {2 * i}", "answer": str(2 * i)} for i in range(400)]
    write_rows(folder / "sound.jsonl", rows)
    # Every fourth completion is empty, far more than the share that may be set aside.
    write_rows(
        folder / "faulty.jsonl", [row | ({"completion": ""} if i % 4 == 0 else {}) for i, row in enumerate(rows)]
    )
    (folder / "corrupt.parquet").write_bytes(b"PAR1 and then something that is no Parquet PAR1")
    (folder / "bare").mkdir()
    (folder / "bare" / "config.json").write_text("{}")
    return folder


def write_rows(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def own_data(file: str) -> list[str]:
    """Return overrides that name a user's file."""
    return ["-s", "data.name=own", "-s", f"data.path={file}", "-s", "data.format=demonstrations"]


def changed(project: Path) -> str:
    """Return changed and new files, as git lists them."""
    return subprocess.check_output(["git", "status", "--porcelain"], cwd=project, text=True)


# ---------------------------------------- errors before anything is started


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no_such_recipe"], "no_such_recipe: no such recipe"),
        (["arithmetik"], "did you mean recipes/arithmetic.yaml?"),
        (["tiny", "-s", "rollouts.groupsize=8"], "rollouts.groupsize: unknown key; did you mean group_size?"),
        (["tiny", "-s", "rollouts.group_size=1"], "rollouts.group_size is 1, but advantage group_relative"),
        (["tiny", *own_data("gone.jsonl")], "data.path: gone.jsonl: no such file"),
        (["tiny", "-s", "policy.base=./bare"], "policy.base: bare: no weights, *.safetensors is missing"),
        (["tiny", "-s", "policy.subnetwork={masks: gone}"], "policy.subnetwork.masks: gone: no such file"),
        (["tiny", "-s", "policy.base=./gone"], "policy.base: gone: no such model folder"),
        (
            ["tiny", "-s", "policy.base=Nobody/Nothing"],
            "policy.base: Nobody/Nothing is not a local folder, and as a hub id",
        ),
        (["tiny", "-s", "policy.lora={targets: [q_projj]}"], "policy.lora.targets: the policy has no module 'q_projj'"),
        (["tiny", "-s", "rewards.0.weight=.inf"], "rewards.0.weight: inf is not a finite number"),
        (["tiny", "-s", "rollouts.temperature=0"], "rollouts.temperature: Input should be greater than 0"),
        (["tiny", "-s", "evaluation.ks=[64]"], "evaluation.ks holds 64, but evaluation.samples is 16"),
        (["tiny", *own_data("s3://bucket/rows.jsonl")], "s3://bucket/rows.jsonl is not a path on this machine"),
        (["x" * 5000], "no such recipe (File name too long)"),
    ],
)
def test_a_wrong_recipe_or_a_missing_file_is_one_line_and_nothing_starts(
    project: Path,
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = changed(project)
    monkeypatch.chdir(project)
    monkeypatch.setattr("os.environ", {**os.environ, "REWARDFLOW_HOME": str(project / "untouched")})
    monkeypatch.setattr("sys.argv", ["rewardflow", "run", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert (ended.value.code, out) == (1, "")
    assert line.startswith("error: ") and says in line
    assert not (project / "untouched").exists() and changed(project) == before


@pytest.mark.slow
def test_a_port_in_use_is_one_line_and_no_server_starts(project: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = rewardflow(project, "ui", "--mlflow-port", str(port), REWARDFLOW_HOME=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"error: port {port} is in use, so the MLflow server cannot start: choose another with --mlflow-port\n"
    )
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------- errors of the data steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"path": "sound.jsonl", "columns": {"prompt": "question"}}, "no column 'question'"),
        ({"path": "sound.jsonl", "limit": 2}, "split of problems is empty (2 rows in all"),
        ({"path": "corrupt.parquet"}, "corrupt.parquet"),
    ],
    ids=["a column that is not there", "an empty split", "a corrupt Parquet file"],
)
def test_data_that_cannot_be_prepared_are_one_line_and_leave_no_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], says: str
) -> None:
    monkeypatch.chdir(project)
    before = changed(project)
    with pytest.raises(UserError) as caught:
        versions.prepare(DataSettings(name="own", format="demonstrations", **settings), project, lambda line: None)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert changed(project) == before
    assert not list((project / "data").glob("**/*own*"))


@pytest.mark.slow
def test_rows_that_fail_validation_stop_the_flow_with_column_count_and_three_ids(
    project: Path, servers: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{servers.prefect}/api"
    given = ["run", "tiny", *own_data("faulty.jsonl")]
    ended = rewardflow(project, *given, REWARDFLOW_HOME=str(tmp_path), PREFECT_API_URL=address)
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert re.match(
        r"error: demonstrations_(\w+)\.parquet: column 'completion': .* in \d+ rows, "
        r"such as (\1-d\d{6}, ){2}\1-d\d{6}\b",
        line,
    )
    assert "Traceback" not in ended.stdout + ended.stderr
    assert not list(tmp_path.glob("store/validate/*/result.json")) and not list(tmp_path.glob("store/*/*/clean"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(tmp_path)
    (run,) = summaries.recent_runs("tiny")
    summary = summaries.run_summary("tiny", run.run_id)
    assert [step.status for step in summary.steps] == ["FINISHED", "FAILED"] and run.status == "FAILED"
    assert line.removeprefix("error: ") in summary.description


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["no_such_recipe"], pytest.param(["tiny", *own_data("faulty.jsonl")], marks=pytest.mark.thorough)],
    ids=["before the flow", "in a step"],
)
def test_with_debug_an_error_shows_its_traceback(
    project: Path, servers: Pair, tmp_path: Path, arguments: list[str]
) -> None:
    settings = {"REWARDFLOW_HOME": str(tmp_path), "PREFECT_API_URL": f"{servers.prefect}/api"}
    ended = rewardflow(project, "--debug", "run", *arguments, **settings)
    assert ended.returncode == 1 and "Traceback" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("models.base.errors.UserError: ")


# ---------------------------------------- errors of the machine


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 256 KiB, and yield its folder."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_no_space_for_a_checkpoint_is_one_line_and_leaves_the_one_before_whole(small_disk: Path) -> None:
    module = torch.nn.Linear(100, 100)
    optimiser = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 100)).sum().backward()
    optimiser.step()  # 40 KB of weights and 80 KB of moments
    root = small_disk / "checkpoints"
    first = write_checkpoint(root, 1, state_of({"policy": module}, {"policy": optimiser}), {"policy": 1})
    with pytest.raises(UserError, match="no space left to write it") as caught:
        write_checkpoint(
            root, 2, state_of({"policy": module, "reference": module}, {"policy": optimiser}), {"policy": 1}
        )
    assert "round_000002" in str(caught.value) and "\n" not in str(caught.value)
    assert [entry.name for entry in root.iterdir()] == ["round_000001"]
    checkpoint = newest_checkpoint(root)
    assert checkpoint is not None and checkpoint.folder == first
