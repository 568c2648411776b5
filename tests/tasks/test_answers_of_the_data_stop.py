"""Check of the data: if a reward needs answers or tests and the data have none, the run stops before training."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from models.recipes.load import load_recipe
from tasks.data.answers import require_answers, require_held_out_answers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the folder for the prepared problems."""
    return tmp_path / "prepared"


def prepared(folder: Path, header: str, answer: str) -> Path:
    file = folder.with_name("rows.csv")
    file.write_text(header + "\n" + "".join(f"Add {i} to {i},{answer and 2 * i}\n" for i in range(80)))
    prepare(DataSettings(name="own", path=(file,), format="problems"), folder)
    return folder


def recipe(folder: Path, rewards: str) -> Path:
    file = folder.with_name("mine.yaml")
    file.write_text(f"rewards: {rewards}\n")
    return file


@pytest.mark.parametrize("rewards", ["exact_answer", "[reward_model, length_penalty]", "win_rate"])
def test_no_problem_with_an_answer_stops_the_run(data: Path, rewards: str) -> None:
    loaded = load_recipe(recipe(data, rewards))
    with pytest.raises(
        UserError, match=r"no training problem has an answer, which rewards\.\d \(\w+\) holds"
    ) as refused:
        require_answers(prepared(data, "prompt,solution", "1"), loaded)
    assert "data.columns.answer" in str(refused.value)


def test_answers_under_a_header_with_spaces_are_there(data: Path) -> None:
    require_answers(prepared(data, "prompt, answer", "1"), load_recipe(recipe(data, "exact_answer")))


def test_where_no_reward_reads_answers_none_is_asked_for(data: Path) -> None:
    folder = prepared(data, "prompt,solution", "1")
    require_answers(folder, load_recipe(recipe(data, "reward_model")))
    require_answers(folder, load_recipe(recipe(data, "exact_answer"), ["schedule=null"]))


def test_a_reward_that_runs_tests_needs_some(data: Path) -> None:
    loaded = load_recipe(recipe(data, "unit_tests"))
    with pytest.raises(UserError, match=r"no training problem has tests, which rewards\.0 \(unit_tests\) runs"):
        require_answers(prepared(data, "prompt,answer", "1"), loaded)
    require_answers(prepared(data, "prompt,tests", "1"), loaded)
    with pytest.raises(UserError, match=r"gate\.held_out\.mine: no problem has an answer"):
        require_held_out_answers(data, "mine", None)
    require_held_out_answers(data, "mine", loaded.verifier)
