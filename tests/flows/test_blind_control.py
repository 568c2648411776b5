"""The blind control in a whole run: a policy that gains by frequent answers, without looking, is refused."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from project import Project, rewardflow

from models.base.images import content_of, data_url, images_in, without_images
from models.task_sets.scenes import ANSWERS
from tests.support.tiny_vision import rows_about_scenes

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
SMALL = {
    "data.name": "skewed",
    "data.format": "kinds",
    "engine.name": "transformers",
    "promote_unpinned": "true",
    "warm_start.steps": "10",
    "schedule.rounds": "40",
    "rollouts.prompts": "64",
    "evaluation.problems": "40",
    "gate.problems": "200",
}


def write_rows(folder: Path, count: int) -> None:
    """Write questions about colours with their pictures. Of the answers 70 % are red."""
    random, colours = Random(0), set(ANSWERS["colour"])
    made = [row for row in rows_about_scenes(pictures=4 * count, each=5) if row[1] in colours]
    red = [row for row in made if row[1] == "red"][: count * 7 // 10]
    rows = [*red, *[row for row in made if row[1] != "red"][: count - len(red)]]
    assert len(rows) == count and len(red) == count * 7 // 10
    random.shuffle(rows)
    folder.mkdir()
    for name, column in (("problems", "answer"), ("demonstrations", "completion")):
        with (folder / f"{name}.jsonl").open("w") as file:
            for text, answer in rows:
                image = data_url(content_of(images_in(text)[0]))
                row = {"prompt": without_images(text), column: answer, "image": image}
                file.write(f"{json.dumps(row)}\n")


def test_a_policy_that_gains_without_looking_is_refused(project: Project, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", 1000)
    overrides = [f"--set={key}={value}" for key, value in {**SMALL, "data.path": str(tmp_path / "rows")}.items()]
    home = project.settings(tmp_path / "home")
    ended = rewardflow(project.folder, "run", "images/scenes", *overrides, **home)
    assert ended.returncode == 0, ended.stderr
    assert "refused: held_out_another_picture: against the baseline" in ended.stdout
    shown = rewardflow(project.folder, "show", **home).stdout
    assert re.search(r"✔\W+better", shown) and re.search(r"✘\W+held_out_another_picture", shown)
