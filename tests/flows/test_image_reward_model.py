"""A reward model that reads pictures and facts, in a whole run: fitted, registered, and the reward of the loop."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from project import Project, rewardflow

from models.base.images import content_of, data_url, images_in, without_images
from models.task_sets.captions import CaptionsSettings
from models.task_sets.drawing import draw_tasks

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
SETTINGS = {
    "data.name": "described",
    "data.format": "kinds",
    "engine.name": "transformers",
    "promote_unpinned": "true",
}


def write_rows(folder: Path) -> None:
    """Write descriptions of pictures as problems, demonstrations and preferences."""
    settings = CaptionsSettings(problems={"train": 300}, pictures=2000, every=0.5, flawed=0.3)
    random = Random(0)
    files: dict[str, list[dict[str, str]]] = {"problems": [], "demonstrations": [], "preferences": []}
    for task in draw_tasks(settings, "train"):
        row = {"prompt": without_images(task.prompt), "image": data_url(content_of(images_in(task.prompt)[0]))}
        _, chosen, rejected = settings.prefer(random, task)
        files["problems"].append(row | {"answer": task.answer})
        files["demonstrations"].append(row | {"completion": task.answer})
        files["preferences"].append(row | {"chosen": chosen, "rejected": rejected})
    folder.mkdir()
    for kind, rows in files.items():
        (folder / f"{kind}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def test_a_reward_model_of_pictures_and_facts_is_fitted_and_read(project: Project, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows")
    overrides = [f"--set={key}={value}" for key, value in {**SETTINGS, "data.path": str(tmp_path / "rows")}.items()]
    home = project.settings(tmp_path / "home")
    ended = rewardflow(project.folder, "run", "images/fact_rlhf", "--smoke", *overrides, **home)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"reward_model .*pair accuracy 0\.\d+", ended.stdout), ended.stdout
    (config,) = (tmp_path / "home").rglob("reward_model/config.json")
    assert json.loads(config.read_text())["architectures"] == ["Idefics3ForSequenceClassification"]
    assert json.loads((config.parent / "facts.json").read_text()) == {"template": "{prompt} facts: {answer}"}
