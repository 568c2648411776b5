"""A run with a recipe from outside of the repository is not pinned: its commit is marked as dirty."""

import subprocess
import sys

import pytest
from project import Project, environment

pytestmark = pytest.mark.thorough

OPEN = """
import sys
from flows.runtime.opening import open_flow
from tasks.tracking import store, tags
with open_flow("train", sys.argv[1], []) as opened:
    print(opened.code.unpinned)
print(store.client().get_run(opened.run_id).data.tags[tags.GIT_COMMIT])
"""


def test_a_recipe_that_lies_outside_of_the_repository_is_held_by_no_commit(project: Project, tmp_path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: tiny\n")
    ended = subprocess.run(
        [sys.executable, "-c", OPEN, str(recipe)],
        cwd=project.folder,
        env=environment(**project.settings(home=tmp_path / "home")),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    why, commit = ended.stdout.strip().splitlines()[-2:]
    assert f"the recipe {recipe} lies outside of the repository" in why
    assert commit.endswith("-dirty")
