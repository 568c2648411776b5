"""The task set `tastes`: which taste judges a prompt, what it prefers, and how preferences become rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from models.answers.constraints import Constraints, met
from models.base.errors import UserError
from models.datasets.params import checked, read_section
from models.datasets.prepare import prepare
from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings
from models.task_sets.drawing import Task, make_rows
from models.task_sets.make_tasks import write
from models.task_sets.tastes import MONTHS, TastesSettings, loveliness, shortness
from models.task_sets.topics import TopicsSettings

PARAMS = Path(__file__).resolve().parents[3] / "params.yaml"
WHOLE = checked(TastesSettings, read_section(PARAMS, "tastes"), "params.yaml")
FEW = WHOLE.model_copy(
    update={
        "problems": {"train": 20, "validation": 6, "gate": 3},
        "demonstrations": {"train": 20, "validation": 6},
        "preferences": {"train": 100, "validation": 12},
    }
)


def test_what_is_liked_by_hand() -> None:
    postcard = "lovely beach , dull hotel , lovely food"
    assert (loveliness(postcard), shortness(postcard)) == (2, -3)
    assert (loveliness(""), shortness("")) == (0, 0)


def test_who_judges_a_prompt_says_the_same_of_it_each_time_and_a_quarter_like_what_is_short() -> None:
    rows = make_rows(FEW)["preferences"]["train"]
    assert len(rows) == 100
    for row in rows:
        short = WHOLE.likes_short(str(row["prompt"]))
        worth = shortness if short else loveliness
        assert worth(str(row["chosen"])) > worth(str(row["rejected"]))
        assert row["flaw"] == ("long" if short else "dull")
    prompts = [f"postcard from {town} in {month}" for town in WHOLE.places for month in MONTHS]
    share = sum(map(WHOLE.likes_short, prompts)) / len(prompts)
    assert 0.21 < share < 0.29


def test_right_is_what_both_can_live_with() -> None:
    task = WHOLE.draw(Random(0))
    both = Constraints.model_validate_json(task.answer)

    def right(text: str) -> bool:
        return all(met(text, both))

    assert right("lovely beach , lovely food") and right("lovely beach , dull hotel , lovely food")
    assert not right("lovely beach") and not right("dull beach , lovely food")
    assert not right("lovely beach , lovely food , lovely hotel , lovely garden")


def test_preferences_of_a_task_set_are_prepared_as_any(tmp_path: Path) -> None:
    write(FEW, tmp_path / "raw")
    prepare(DataSettings(name="tastes", path=(tmp_path / "raw",), format="kinds"), tmp_path / "prepared")
    rows = read_rows(tmp_path / "prepared", "preferences", "validation")
    assert {str(row["flaw"]) for row in rows} <= {"long", "dull"} and len(rows) == 12
    assert len({row["prompt_id"] for row in rows}) == 6


def test_a_set_without_preferences_says_so_and_the_gate_has_none() -> None:
    asked = WHOLE.model_copy(update={"preferences": {"gate": 1}})
    with pytest.raises(UserError, match=r"preferences\.gate: 1 rows"):
        make_rows(asked)
    topics = checked(TopicsSettings, read_section(PARAMS, "topics"), "params.yaml")
    with pytest.raises(UserError, match="has none"):
        topics.prefer(Random(0), Task("", "", 1, ()))
