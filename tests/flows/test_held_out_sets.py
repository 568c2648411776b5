"""Tests of a user's own held-out set: it is validated, kept out of the training, used by the gate, and never shown."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
from project import Project, Ran, rewardflow
from test_data_command import SOMEBODY

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=12, together="held-out sets")]
SET = "gate.held_out.history"
FIELDS = [f"--set={SET}.format=problems", f"--set={SET}.columns={{prompt: question}}"]


def history(project: Project, file: Path) -> list[str]:
    """Write 64 sums and one prompt of the training in capitals, and return the prompts."""
    stolen = pd.read_parquet(project.folder / "data/prepared/arithmetic/problems_train.parquet").iloc[0]
    rows = [{"question": f"{a} + {b} + 0", "answer": str(a + b)} for a in range(1, 9) for b in range(1, 9)]
    rows.append({"question": stolen["prompt"].upper() + " ", "answer": stolen["answer"]})
    file.write_text("\n".join(map(json.dumps, rows)))
    return [row["question"] for row in rows]


@pytest.mark.thorough  # a whole run of the flow: a minute and a half
def test_a_set_is_pinned_kept_out_of_the_training_judged_by_and_never_shown(
    project: Project, first: Ran, tmp_path: Path
) -> None:
    prompts = history(project, tmp_path / "history.jsonl")
    given = [str(tmp_path / "history.jsonl"), "--recipe", "tiny", "--held-out", "history", *FIELDS]
    added = rewardflow(project.folder, "data", "add", *given, **SOMEBODY)
    assert added.returncode == 0, added.stderr
    said, command = added.stdout.strip().splitlines()[-2:]
    assert said.startswith("history: 65 rows, version ") and said.endswith(", pushed")

    settings = project.settings(tmp_path / "home")
    ended = rewardflow(project.folder, *shlex.split(command)[1:], **settings)
    assert ended.returncode == 0, ended.stderr
    assert "65 held-out problems of history, 4 samples each, for the verdict alone" in ended.stdout
    assert "does not hold the data history" not in ended.stdout + ended.stderr
    set_aside = [pd.read_parquet(file) for file in tmp_path.glob("home/store/validate/*/quarantine.parquet")]
    reasons = pd.concat(set_aside)
    stolen = reasons[reasons["reason"] == "the prompt stands in a split that is held out further"]
    assert set(stolen["file"]) >= {"problems_train.parquet"} and any(
        prompts[-1].strip() in row.upper() for row in stolen["row"]
    )

    chain = rewardflow(project.folder, "lineage", "1", **settings).stdout
    assert "history (held out)" in chain and "held_out_history: against the baseline" in chain
    shown = rewardflow(project.folder, "show", **settings).stdout
    assert not any(prompt.strip() in chain + shown for prompt in prompts)
    digest = said.split("version ")[1].split(",")[0]
    uses = rewardflow(project.folder, "lineage", "--data", digest, **settings).stdout
    assert "only measured on it:" in uses and "\nlearned from it:" not in uses


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "gate.held_out.history: data.path: {file}: no such file"),
        ([{"question": "1 + 1"}], "gate.held_out.history: no problem has an answer to compare completions with;"),
        ([], "gate.held_out.history: {file}: no rows"),
    ],
)
def test_what_is_wrong_with_a_set_is_one_line_before_anything_is_trained(
    project: Project, first: Ran, tmp_path: Path, rows: list[dict[str, str]] | None, said: str
) -> None:
    file = tmp_path / "history.jsonl"
    if rows is not None:
        file.write_text("\n".join(map(json.dumps, rows)))
    before = len(list(project.home.glob("store/*/*")))
    ended = rewardflow(project.folder, "run", "tiny", f"--set={SET}.path={file}", *FIELDS, **project.settings())
    assert ended.returncode == 1 and said.format(file=file) in ended.stderr.strip().splitlines()[-1]
    assert len(list(project.home.glob("store/*/*"))) <= before + 1
