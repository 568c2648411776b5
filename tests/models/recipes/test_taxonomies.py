"""Taxonomies of surveys: every leaf names existing places, or the reason why it is not here."""

import typing
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.datasets.schema import Kind
from models.method.registry import NESTED_SLOTS, SLOTS, parts
from models.recipes.papers import registered_papers
from models.recipes.places import PART_KINDS, file_of
from models.recipes.schema import recipe_type
from models.recipes.taxonomies import (
    COLUMNS,
    TAXONOMIES,
    Leaf,
    SurveyAxis,
    Taxonomy,
    as_markdown,
    as_text,
    registered_taxonomies,
)
from tests.support.register_table import write_register

ROOT = Path(__file__).resolve().parents[3]
SURVEYS = registered_taxonomies()
LEAVES = [
    pytest.param(leaf, id=f"{survey.id} {axis.name}: {leaf.name}")
    for survey in SURVEYS
    for axis in survey.axes
    for leaf in axis.leaves
]
SLOT_OF = {kind: "rewards" if kind == "reward" else kind for kind in PART_KINDS}


def has_key(schema: Any, path: str) -> bool:
    """Return whether a recipe may have the key `path`, with dots between the sections."""
    if not path:
        return True
    key, _, rest = path.partition(".")
    options = typing.get_args(schema) or (schema,)
    hints = {name: hint for option in options for name, hint in vars_of(option).items()}
    return key in hints and has_key(hints[key], rest)


def vars_of(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls) if isinstance(cls, type) and cls is not type(None) else {}


def exists(kind: str, name: str) -> bool:
    match kind:
        case "setting":
            return has_key(recipe_type(), name)
        case "data":
            return name in typing.get_args(Kind)
    if kind in SLOT_OF:
        return name in parts(SLOT_OF[kind])  # type: ignore[arg-type]
    return file_of(kind, name) is not None


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_names_existing_places_or_the_reason_for_their_absence(leaf: Leaf) -> None:
    assert [f"{kind} {name}" for kind, name in leaf.places if not exists(kind, name)] == []
    assert leaf.places or leaf.note


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert exists("setting", "reward_model.fit") and exists("setting", "policy.lora")
    assert not exists("setting", "reward_model.fits") and not exists("setting", "police")
    assert exists("objective", "dpo") and not exists("objective", "dpoo") and not exists("data", "pairs")


def test_every_slot_has_a_kind_and_every_part_of_it_has_a_file() -> None:
    assert set(SLOT_OF.values()) == set(SLOTS) | set(NESTED_SLOTS)
    for kind, slot in SLOT_OF.items():
        for name, cls in parts(slot).items():  # type: ignore[arg-type]
            assert file_of(kind, name) == cls.__module__.replace(".", "/") + ".py"


def test_the_surveys_with_a_taxonomy_are_those_that_the_register_places_on_its_page() -> None:
    on_page = {
        paper.id
        for paper in registered_papers()
        for place in paper.places
        if place.name == f"docs/taxonomies.md#survey-{paper.id}"
    }
    assert on_page == {survey.id for survey in SURVEYS} >= {8, 32, 58, 73, 175, 198, 274, 288, 290}


def test_the_page_is_the_one_that_the_table_makes() -> None:
    assert (ROOT / "docs" / "taxonomies.md").read_text() == as_markdown(SURVEYS), (
        "run: rewardflow methods --taxonomies --markdown > docs/taxonomies.md"
    )


def test_a_survey_is_shown_with_axes_leaves_and_reasons() -> None:
    axis = SurveyAxis(
        "structure", (Leaf("tree", (("rollouts", "tree"), ("select", "siblings")), ""), Leaf("nested", (), "why"))
    )
    assert as_text([Taxonomy(288, "A Blueprint", (axis,))]).splitlines() == [
        "A Blueprint (288)",
        "  structure",
        "    tree    rollouts tree; select siblings",
        "    nested  not here (why)",
    ]


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        (["999|a|b|recipe dpo|"], r"row 2, column survey: '999' is not the number of a paper in papers\.tsv"),
        (["8||b|recipe dpo|"], r"row 2, column axis: it is empty; write its name"),
        (["8|a||recipe dpo|"], r"row 2, column leaf: it is empty; write its name"),
        (["8|a|b|not here|"], r"row 2, column note: it is empty; write why the leaf is not here"),
        (["8|a|b|dpo|"], r"row 2, column places: 'dpo' is not a kind and a name; the kinds are recipe, "),
        (["8|a|b|recipe|"], r"row 2, column places: 'recipe' is not a kind and a name"),
        (["8|a|b||"], r"row 2, column places: '' is not a kind and a name"),
        (["8|a|b|recipe dpo|", "8|a|b|recipe kto|"], r"row 3, column leaf: 'b' is twice in the axis 'a'; delete one"),
        (["8|a"], r"row 2: 2 columns instead of 5; check the tabs"),
    ],
)
def test_a_bad_row_is_one_line_with_file_row_and_column(tmp_path: Path, rows: list[str], finding: str) -> None:
    file = write_register(tmp_path / "taxonomies.tsv", COLUMNS, *rows)
    with pytest.raises(UserError, match=r"taxonomies\.tsv, " + finding) as raised:
        registered_taxonomies(file)
    assert len(str(raised.value).splitlines()) == 1


def test_the_table_is_part_of_the_recipes_folder() -> None:
    assert TAXONOMIES == ROOT / "recipes" / "taxonomies.tsv"
