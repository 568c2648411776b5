"""Smoke runs of the recipes for real models, from data to verdict, on a tiny base model of the same architecture."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from project import Project, command, environment

from tests.support.real_models import RECIPES, data_of, save_tiny_qwen

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_smoke_of_a_recipe_for_a_real_model_goes_through(
    file: Path, project: Project, shared_data: Path, tmp_path: Path
) -> None:
    base = save_tiny_qwen(tmp_path / "Qwen3-tiny")
    overrides = [part for item in (f"policy.base={base}", *data_of(file, shared_data)) for part in ("--set", item)]
    ended = subprocess.run(
        command("run", f"real/{file.stem}", "--smoke", *overrides),
        cwd=project.folder,
        env=environment(**project.settings(tmp_path / "home")),
        capture_output=True,
        text=True,
    )
    shutil.rmtree(tmp_path / "home", ignore_errors=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    reused = re.findall(r"^(\w[\w ]*?) +\d+\.\d +reused ", ended.stdout, flags=re.MULTILINE)
    assert set(reused) <= {"data"}, "the state folder is new; prepared rows may lie there from another recipe"
    if "reward_model" not in file.stem:
        assert "\nverdict " in ended.stdout
