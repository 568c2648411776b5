"""Tests of `rewardflow interpolate`: both ends are the given policies, mixtures are measured, and wrong arguments."""

from pathlib import Path

import pytest
import torch
from project import Project, Ran, rewardflow

from models.policies.folder import save_model_folder
from tests.support.tiny_models import tiny_policy, word_tokenizer


@pytest.mark.slow
@pytest.mark.thorough
def test_the_ends_of_an_interpolation_are_the_two_policies(project: Project, first: Ran, tmp_path: Path) -> None:
    home = project.copy_home(tmp_path / "home")
    settings = project.settings(home)
    second = rewardflow(project.folder, "run", "tiny", "--set", "schedule.rounds=2", **settings)
    assert second.returncode == 0, second.stdout + second.stderr

    def rows(*arguments: str) -> list[list[str]]:
        done = rewardflow(project.folder, "interpolate", *arguments, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout[done.stdout.index("distinct samples, with") :].splitlines()
        start = next(place for place, line in enumerate(lines) if line.startswith("share"))
        return [line.split() for line in lines[start + 1 :] if line and line[0].isdigit()]

    mixed = rows("1", "2", "--share", "1", "--share", "0", "--share", "0.5")
    assert [row[0] for row in mixed] == ["0", "0.5", "1"] and any(row[-1] == "yes" for row in mixed)
    turned = rows("2", "1", "--share", "0")
    assert turned[0][1:7] == mixed[2][1:7], "the second policy alone"


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["A", "B"], "--recipe: both are folders"),
        (["A", "B", "--share", "1.5"], "--share: 1.5 is not between 0 and 1"),
        (["A", "OTHER", "--recipe", "arithmetic"], "but 24 in"),
        (["A", "none-policy/7", "--recipe", "arithmetic"], "no version 7"),
    ],
    ids=["no recipe", "share", "another vocabulary", "no version"],
)
def test_what_is_wrong_with_the_command_is_one_line_before_anything_starts(
    arguments: list[str], line: str, new_store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(new_store)
    home = new_store(tmp_path / "home")
    monkeypatch.setenv("REWARDFLOW_HOME", str(home))
    for name, vocabulary in (("A", 24), ("B", 24), ("OTHER", 32)):
        save_model_folder(tiny_policy(torch.float32, vocabulary=vocabulary), word_tokenizer(), tmp_path / name)
    from typer.testing import CliRunner

    from flows.command_line import app

    given = [str(tmp_path / word) if (tmp_path / word).is_dir() else word for word in arguments]
    ended = CliRunner().invoke(app, ["interpolate", *given])
    assert ended.exit_code == 1 and line in str(ended.exception) and "\n" not in str(ended.exception)
