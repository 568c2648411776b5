"""Inheritance of recipes: the values that a recipe takes from the one that it extends, and those that it does not."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.recipes.load import load_recipe, plain
from models.recipes.methods import methods

PAPER = 'source: {id: 7, title: "A method", family: policy-gradient}'
BY_COMPLETION = "schedule: {rounds: 7, normalisation: completion}"


def written(folder: Path, **recipes: str) -> Path:
    """Write recipes into `folder`, by name, and return the file of the last one."""
    for name, text in recipes.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{list(recipes)[-1]}.yaml"


def refused(file: Path, overrides: Sequence[str] = ()) -> str:
    """Return the line with which a recipe is refused."""
    with pytest.raises(UserError) as caught:
        load_recipe(file, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recipe_that_names_no_paper_has_none_though_the_one_that_it_extends_has(tmp_path: Path) -> None:
    file = written(tmp_path, parent=PAPER, child="extends: parent\nschedule: {rounds: 3}")
    assert load_recipe(tmp_path / "parent.yaml").source.id == 7
    source = load_recipe(file).source
    assert (source.id, source.title, source.family) == (None, "", "")
    assert [method.paper for method in methods(tmp_path)] == ["A method (7)", ""]


def test_a_paper_is_named_whole_and_takes_nothing_from_that_of_the_recipe_below(tmp_path: Path) -> None:
    file = written(tmp_path, parent=PAPER, child="extends: parent\nsource: {title: Another}")
    source = load_recipe(file).source
    assert (source.id, source.title, source.family) == (None, "Another", "")


@pytest.mark.parametrize(("objective", "level"), [("a_lol", "completion"), ("copg", "group")])
def test_a_normalisation_that_nothing_reads_is_refused_by_one_line_with_its_key(
    tmp_path: Path, objective: str, level: str
) -> None:
    file = written(tmp_path, mine=f"objective: {objective}\n{BY_COMPLETION}")
    says = f"schedule.normalisation is completion, but objective {objective} has one loss a {level}"
    assert says in refused(file) and str(file) in refused(file)
    quiet = written(tmp_path, quiet=f"objective: {objective}")
    assert says in refused(quiet, ["schedule.normalisation=completion"])
    assert load_recipe(quiet).objective.level == level


def test_an_objective_over_tokens_has_the_normalisation_of_the_recipe_below(tmp_path: Path) -> None:
    file = written(tmp_path, parent=BY_COMPLETION, child="extends: parent\nobjective: {name: reinforce}")
    schedule = load_recipe(file).schedule
    assert schedule is not None and schedule.normalisation == "completion"


def test_one_that_another_objective_had_falls_away_where_the_new_one_knows_none(tmp_path: Path) -> None:
    """A recipe that changes the objective of its parent need not mention the parent's normalisation."""
    written(tmp_path, parent=BY_COMPLETION, child="extends: parent\nobjective: copg")
    file = written(tmp_path, grandchild="extends: child\nseed: 3")
    commanded = load_recipe(tmp_path / "parent.yaml", ["objective=copg"])
    for recipe in (load_recipe(tmp_path / "child.yaml"), load_recipe(file), commanded):
        assert recipe.schedule is not None
        assert recipe.schedule.normalisation is None and recipe.schedule.rounds == 7


def test_one_that_is_stated_beside_the_new_objective_is_refused_all_the_same(tmp_path: Path) -> None:
    written(tmp_path, parent=BY_COMPLETION)
    beside = written(tmp_path, child="extends: parent\nobjective: copg\nschedule: {normalisation: constant}")
    above = written(tmp_path, other="extends: parent\nobjective: copg")
    assert "schedule.normalisation is constant" in refused(beside)
    assert "schedule.normalisation is token" in refused(above, ["schedule.normalisation=token"])
    assert "schedule.normalisation is token" in refused(above, ["schedule={normalisation: token}"])


def test_a_recipe_without_a_loop_may_state_whatever_it_likes_of_it(tmp_path: Path) -> None:
    assert load_recipe(written(tmp_path, mine="objective: copg\nschedule: null")).schedule is None


def test_a_recipe_that_is_written_out_whole_is_read_again_as_it_was(tmp_path: Path) -> None:
    first = load_recipe(written(tmp_path, mine="objective: copg"))
    again = load_recipe(written(tmp_path, again=json.dumps(plain(first))))
    assert again == first


def test_an_empty_mapping_drops_the_inherited_entries(tmp_path: Path) -> None:
    parent = "gate: {problems: 9, held_out: {a: {path: a.jsonl, format: problems, problems: 40}}}"
    file = written(tmp_path, parent=parent, child="extends: parent\ngate: {samples: 2, held_out: {}}")
    assert list(load_recipe(tmp_path / "parent.yaml").gate.held_out) == ["a"]
    gate = load_recipe(file).gate
    assert (gate.problems, gate.samples, gate.held_out) == (9, 2, {})


@pytest.mark.parametrize("name", ["verifiers_haiku", "openenv_questions"])
def test_recipes_of_foreign_environments_have_no_held_out_sets_of_another_environment(name: str) -> None:
    assert not load_recipe(f"real/{name}", ()).gate.held_out
