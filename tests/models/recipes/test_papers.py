"""The register of papers: its rows, its places, and the table and page that it makes."""

import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from models.agents.strategy import SourcePaper
from models.base.errors import UserError
from models.method.registry import parts
from models.recipes.papers import (
    COLUMNS,
    GRADES,
    REGISTER,
    RegisteredPaper,
    as_markdown,
    as_text,
    count_rows,
    missing_places,
    registered_papers,
)
from models.recipes.places import file_of
from tests.support.register_table import write_register

ROOT = Path(__file__).resolve().parents[3]
PAPERS = registered_papers()
BY_CLASS = {
    "AGENT": 48, "CORE": 136, "DATA": 14, "DIFF": 11, "OTHER": 19, "ROBOT": 109, "SURVEY": 11, "VLM": 36,
}  # fmt: skip
"""Number of papers of each class in the list of source papers."""


def register(folder: Path, *rows: str, columns: Sequence[str] = COLUMNS) -> Path:
    return write_register(folder / "papers.tsv", columns, *rows)


def places_of(number: int, kind: str) -> set[str]:
    return {place.name for paper in PAPERS if paper.id == number for place in paper.places if place.kind == kind}


def test_every_paper_is_registered_under_its_number_and_class() -> None:
    assert [paper.id for paper in PAPERS] == list(range(1, 385))
    assert Counter(paper.area for paper in PAPERS) == BY_CLASS
    assert len({paper.title.lower() for paper in PAPERS}) == 384


def test_every_place_exists() -> None:
    assert missing_places(PAPERS) == []


@pytest.mark.parametrize(
    ("kind", "slot"), [("strategy", "strategy"), ("environment", "environment"), ("reward", "rewards")]
)
def test_a_place_that_is_a_part_is_one_of_the_registry_and_every_part_has_a_file(kind: str, slot: str) -> None:
    known = parts(slot)  # type: ignore[arg-type]
    named = {place.name for paper in PAPERS for place in paper.places if place.kind == kind}
    assert named <= set(known)
    for name, cls in known.items():
        assert file_of(kind, name) == cls.__module__.replace(".", "/") + ".py"


@pytest.mark.parametrize("file", sorted((ROOT / "recipes").rglob("*.yaml")), ids=lambda file: file.stem)
def test_the_source_of_a_recipe_is_registered_with_the_recipe_as_its_place(file: Path) -> None:
    number = ((yaml.safe_load(file.read_text()) or {}).get("source") or {}).get("id")  # it is not inherited
    name = f"real/{file.stem}" if file.parent.name == "real" else file.stem
    if number is not None:
        assert name in places_of(number, "recipe"), f"recipes/papers.tsv: add the recipe {name} to paper {number}"
    others = [paper.id for paper in PAPERS if name in places_of(paper.id, "recipe") and paper.id != number]
    assert not others, f"recipes/papers.tsv: {name} is the recipe of paper {number}, and not of {others}"


def test_the_source_of_a_strategy_is_registered_with_the_strategy_as_its_place() -> None:
    missing = []
    for name, cls in parts("strategy").items():
        source = inspect.getattr_static(cls, "source")  # a constant of the class, or the property without a paper
        if isinstance(source, SourcePaper) and source.id is not None and name not in places_of(source.id, "strategy"):
            missing.append(f"paper {source.id}: strategy {name}")
    assert missing == [], "add these to recipes/papers.tsv"


def test_a_part_and_a_stand_in_say_what_is_missing_or_replaced() -> None:
    graded = [(paper.id, place) for paper in PAPERS for place in paper.places]
    assert all(place.note for _, place in graded if place.grade != "whole")
    assert [number for number, place in graded if place.grade == "part" and "missing: " not in place.note] == []


def test_a_paper_counts_with_the_best_grade_of_its_places(tmp_path: Path) -> None:
    file = register(
        tmp_path,
        "2|B|AGENT|recipe|dpo|stand-in|this, for that",
        "1|A|CORE|recipe|grpo|part|missing: x",
        "1|A|CORE|strategy|vote|whole|",
        "3|C|AGENT|||open|",
    )
    papers = registered_papers(file)
    assert [(paper.id, paper.grade, len(paper.places)) for paper in papers] == [
        (1, "whole", 2),
        (2, "stand-in", 1),
        (3, "open", 0),
    ]
    assert count_rows(papers) == [
        ("class", "papers", *GRADES),
        ("AGENT", "2", "0", "0", "1", "1"),
        ("CORE", "1", "1", "0", "0", "0"),
        ("all", "3", "1", "0", "1", "1"),
    ]


def test_the_table_has_a_line_for_each_place_and_the_open_papers_alone_if_wanted(tmp_path: Path) -> None:
    papers = [
        *registered_papers(register(tmp_path, "1|A|CORE|recipe|grpo|part|missing: x", "1|A|CORE|strategy|vote|whole|")),
        RegisteredPaper(2, "B", "DATA", ()),
    ]
    assert as_text(papers).splitlines() == [
        "id  grade  place           title",
        "--------------------------------",
        "1   part   recipe: grpo    A",
        "1   whole  strategy: vote  A",
        "2   open                   B",
        "",
        "class  papers  whole  part  stand-in  open",
        "------------------------------------------",
        "CORE        1      1     0         0     0",
        "DATA        1      0     0         0     1",
        "all         2      1     0         0     1",
    ]
    assert as_text(papers, only_open=True).splitlines()[2:4] == ["2   open          B", ""]


def test_the_page_of_papers_is_the_one_that_the_register_makes() -> None:
    page = as_markdown(PAPERS)
    assert (ROOT / "docs" / "papers.md").read_text() == page, (
        "run: rewardflow methods --papers --markdown > docs/papers.md"
    )
    assert "| recipe: [dpo](../recipes/preference-optimisation/dpo.yaml) | whole |" in page


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        (["x|A|CORE|||open|"], r"row 2, column id: 'x' is not a number of a paper"),
        (["1||CORE|||open|"], r"row 2, column title: it is empty; copy it"),
        (["1|A||||open|"], r"row 2, column class: it is empty; copy it"),
        (["1|A|CORE|recipe|dpo|hole|"], r"row 2, column grade: 'hole' is not a grade; use whole, part, stand-in, open"),
        (["1|A|CORE|method|dpo|whole|"], r"row 2, column kind: 'method' is not a kind of place; use recipe, "),
        (["1|A|CORE|recipe||whole|"], r"row 2, column place: it is empty; name the recipe"),
        (["1|A|CORE|recipe|dpo|open|"], r"row 2, column place: an open paper has no place; "),
        (["1|A|CORE|recipe|dpo|part|"], r"row 2, column note: it is empty; write what is missing"),
        (["1|A|CORE|recipe|dpo|stand-in| "], r"row 2, column note: it is empty; write what it replaces"),
        (["1|A|CORE|recipe|dpo|whole|", "1|B|CORE|recipe|kto|whole|"], r"row 3, column title: another row of paper 1"),
        (["1|A|CORE|recipe|dpo|whole|", "1|A|CORE|||open|"], r"row 3, column grade: paper 1 is open in one row"),
        (["1|A|CORE|||open|", "1|A|CORE|recipe|dpo|whole|"], r"row 3, column grade: paper 1 is open in one row"),
        (["1|A|CORE|||open|", "1|A|CORE|||open|"], r"row 3, column grade: paper 1 is open in one row"),
        (["1|A|CORE|recipe|dpo|whole|"] * 2, r"row 3, column place: paper 1 has recipe: dpo twice; delete one"),
        (["1|A|CORE"], r"row 2: 3 columns instead of 7; check the tabs"),
    ],
)
def test_a_bad_row_is_one_line_with_file_row_and_column(tmp_path: Path, rows: list[str], finding: str) -> None:
    with pytest.raises(UserError, match=r"papers\.tsv, " + finding) as raised:
        registered_papers(register(tmp_path, *rows))
    assert len(str(raised.value).splitlines()) == 1


def test_another_header_or_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"papers\.tsv, row 1: the columns are not id, title, class, "):
        registered_papers(register(tmp_path, columns=("id", "title")))
    with pytest.raises(UserError, match=r"none\.tsv: cannot be read"):
        registered_papers(tmp_path / "none.tsv")


@pytest.mark.parametrize(
    ("kind", "name", "file"),
    [
        ("recipe", "dpo", "recipes/preference-optimisation/dpo.yaml"),
        ("recipe", "real/smollm2_gsm8k", "recipes/real/smollm2_gsm8k.yaml"),
        ("recipe", "smollm2_gsm8k", None),
        ("recipe", "agents/calculator", None),
        ("recipe", "no_such_recipe", None),
        ("strategy", "vote", "models/agents/strategies/vote.py"),
        ("strategy", "no_such_strategy", None),
        ("reward", "exact_answer", "models/parts/rewards/rules/exact_answer.py"),
        ("measure", "models/evaluation/aggregate.py", "models/evaluation/aggregate.py"),
        ("measure", "models/evaluation/none.py", None),
        ("benchmark", "benchmarks/speed/episode_pace.py", "benchmarks/speed/episode_pace.py"),
        ("page", "docs/scale.md", "docs/scale.md"),
        ("page", "docs/scale.md#guarantees", "docs/scale.md#guarantees"),
        ("page", "docs/scale.md#no-such-heading", None),
        ("page", "docs/none.md", None),
        ("command", "compare", "flows/cli/compare.py"),
        ("command", "reward-report", "flows/cli/reward_report.py"),
        ("command", "data add", "flows/cli/data/add.py"),
        ("command", "no-such-command", None),
    ],
)
def test_a_place_is_a_file_or_none(kind: str, name: str, file: str | None) -> None:
    assert file_of(kind, name) == file


def test_the_register_is_read_without_the_parts_and_without_torch() -> None:
    code = (
        "import sys; from models.recipes import papers, taxonomies; papers.as_text(papers.registered_papers()); "
        "taxonomies.as_text(taxonomies.registered_taxonomies()); "
        "print([name for name in ('torch', 'pydantic', 'models.recipes.schema') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_the_register_is_part_of_the_recipes_folder() -> None:
    assert REGISTER == ROOT / "recipes" / "papers.tsv"
