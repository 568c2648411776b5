"""Tests of `rewardflow interpolate`: both ends are the given policies, mixtures are measured, and wrong arguments."""

from pathlib import Path

import pytest
from project import Project, Ran, rewardflow, run_here, with_model_folders


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
def test_a_wrong_argument_is_one_line_before_anything_starts(
    arguments: list[str], line: str, new_store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(new_store)
    monkeypatch.setenv("REWARDFLOW_HOME", str(new_store(tmp_path / "home")))
    status, _, errors = run_here("interpolate", *with_model_folders(arguments, tmp_path))
    assert status == 1 and line in errors and len(errors.splitlines()) == 1
