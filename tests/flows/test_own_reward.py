"""A user's own reward in a whole run: its file is recorded with the run, and a changed file gives a new training."""

import subprocess
from pathlib import Path

import pytest
from project import Project, Ran, command, environment

from tasks.tracking import records, store, tags

pytestmark = pytest.mark.thorough

REWARD = """
import os
calls = []
def reward(completions):
    calls.append(1)
    if len(calls) == {killed_in} + 2:  # one call tries it, before the command and the flow begin
        os.kill(os.getpid(), 9)
    return [float(len(text)) for text in completions]
"""


def test_a_changed_reward_file_is_another_run_and_goes_on_from_no_checkpoint_of_the_one_before(
    project: Project, first: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project.copy_home(tmp_path / "home")
    recipe, file = tmp_path / "own.yaml", tmp_path / "my_reward.py"
    recipe.write_text("extends: tiny\nname: tiny\nrewards: [{name: python, path: my_reward.py, label: mine}]\n")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command("run", str(recipe)), cwd=project.folder, env=environment(**project.settings(home)),
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    file.write_text(REWARD.format(killed_in=3))
    assert run().returncode == -9
    (killed,) = (home / "store/fine_tune").glob("*/checkpoints")
    assert any(killed.glob("round_*")), "there is one to go on from; the newest may have been written in part"

    file.write_text(REWARD.format(killed_in=10**6))
    ended = run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "going on from the checkpoint" not in ended.stdout + ended.stderr
    assert killed.exists(), "the checkpoints of the other content wait for it"
    table = Ran(home, ended.stdout, ended.stderr, "").table
    assert (table["warm_start"], table["reward_model"], table["fine_tune"]) == ("reused", "reused", "run")

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)
    page = store.client().get_run(Ran(home, ended.stdout, ended.stderr, "").run_id)
    sha = next(word for word in page.data.params["rewards"].replace("'", " ").split() if len(word) == 64)
    kept = records.fetch_artifact(page.info.run_id, f"recipe/my_reward_{sha[:12]}.py", tmp_path / "kept")
    assert kept is not None and kept.read_text() == file.read_text()
    assert f"the file {file} lies outside of the repository" in page.data.tags[tags.UNPINNED]
    again = run()
    assert again.returncode == 0 and Ran(home, again.stdout, "", "").table["fine_tune"] == "reused"
