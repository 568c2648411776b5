"""The register of source papers, recipes/papers.tsv: where each of them is in this software, and how much of it.

    whole      the whole mechanism, at this project's small scale of models, data and tasks
    part       a part of the mechanism; the note names what is missing
    stand-in   a component of another kind replaces one that the method needs; the note names both
    open       no place yet

A paper with several places has a row for each. Its own grade is the best of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.base.errors import UserError
from models.recipes.find import PACKAGED
from models.recipes.places import FILE_KINDS, file_of, linked
from models.recipes.tables import markdown_table, table_rows, text_table

REGISTER = PACKAGED / "papers.tsv"
COLUMNS = ("id", "title", "class", "kind", "place", "grade", "note")
KINDS = ("recipe", "strategy", "environment", "reward", *FILE_KINDS, "page", "command")
"""Kinds of places of a paper."""
GRADES = ("whole", "part", "stand-in", "open")
"""Grades, the best first."""
_INTRODUCTION = """\
# Papers

This page lists the source papers with their place in this software and a grade. Use it to find the recipe of a paper,
or what of it is missing. For example, this prints the papers that have no place yet:

    rewardflow methods --papers --open

| grade | meaning |
| --- | --- |
| whole | the whole mechanism, at this project's small scale of models, data and tasks |
| part | a part of the mechanism; the note names what is missing |
| stand-in | a component of another kind replaces one that the method needs; the note names both |
| open | no place yet |

A paper with several places has a row for each, and counts with the best grade. A grade states how much of a method is
implemented, and not whether it works at this size: a note states if it does not learn here, and [league.md](league.md)
and [agents.md](agents.md) have the figures. The register is the file [recipes/papers.tsv](../recipes/papers.tsv).
`rewardflow methods --papers --markdown` makes this page from it.
"""


@dataclass(frozen=True)
class PaperPlace:
    """One place of a paper."""

    kind: str
    name: str
    grade: str
    note: str
    """Missing parts, component and replacement, or a remark that the method does not learn here."""

    @property
    def text(self) -> str:
        """Kind and name, as the table shows them."""
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True)
class RegisteredPaper:
    """One paper with its places."""

    id: int
    title: str
    area: str
    """Class of the paper in the list of source papers: CORE, AGENT, DATA, ..."""
    places: tuple[PaperPlace, ...]
    """Empty if the paper is open."""

    @property
    def grade(self) -> str:
        """Best grade of its places; `open` without any."""
        return min((place.grade for place in self.places), key=GRADES.index, default="open")


def registered_papers(file: Path = REGISTER) -> list[RegisteredPaper]:
    """Read the register, sorted by number.

    Raises:
        UserError: a row is not valid. Whether places exist is not checked (`missing_places`).
    """
    papers: dict[int, RegisteredPaper] = {}
    is_open: set[int] = set()
    for at, cells in table_rows(file, COLUMNS):
        number, place = _checked(at, cells)
        paper = papers.get(number, RegisteredPaper(number, cells["title"], cells["class"], ()))
        if (paper.title, paper.area) != (cells["title"], cells["class"]):
            raise UserError(
                f"{at}, column title: another row of paper {number} has another title or class; correct one"
            )
        if number in is_open or (place is None and number in papers):
            raise UserError(f"{at}, column grade: paper {number} is open in one row and not in another; delete one")
        if place is None:
            is_open.add(number)
        elif place.text in [known.text for known in paper.places]:
            raise UserError(f"{at}, column place: paper {number} has {place.text} twice; delete one")
        else:
            paper = RegisteredPaper(number, paper.title, paper.area, (*paper.places, place))
        papers[number] = paper
    return [papers[number] for number in sorted(papers)]


def _checked(at: str, cells: dict[str, str]) -> tuple[int, PaperPlace | None]:
    """Return number and place of a row, None for the place of an open paper; raises `UserError` for a bad cell."""
    kind, name, grade, note = (cells[column] for column in ("kind", "place", "grade", "note"))
    if not cells["id"].isdecimal():
        raise UserError(f"{at}, column id: {cells['id']!r} is not a number of a paper")
    for column in ("title", "class"):
        if not cells[column].strip():
            raise UserError(f"{at}, column {column}: it is empty; copy it from the list of papers")
    if grade not in GRADES:
        raise UserError(f"{at}, column grade: {grade!r} is not a grade; use {', '.join(GRADES)}")
    if grade == "open":
        if kind or name:
            raise UserError(
                f"{at}, column place: an open paper has no place; set another grade, or empty kind and place"
            )
        return int(cells["id"]), None
    if kind not in KINDS:
        raise UserError(f"{at}, column kind: {kind!r} is not a kind of place; use {', '.join(KINDS)}")
    if not name:
        raise UserError(f"{at}, column place: it is empty; name the {kind}, or set the grade open")
    if grade != "whole" and not note.strip():
        wanted = "what is missing" if grade == "part" else "what it replaces"
        raise UserError(f"{at}, column note: it is empty; write {wanted}")
    return int(cells["id"]), PaperPlace(kind, name, grade, note)


def missing_places(papers: Sequence[RegisteredPaper]) -> list[str]:
    """Return the places that do not exist in this repository, one line each."""
    return [
        f"paper {paper.id}: there is no {place.text}"
        for paper in papers
        for place in paper.places
        if file_of(place.kind, place.name) is None
    ]


def as_text(papers: Sequence[RegisteredPaper], only_open: bool = False) -> str:
    """Format the register for a terminal: number, grade, place and title; then counts per class.

    Args:
        papers: the whole register; the counts include all of it.
        only_open: list only the papers without a place.
    """
    rows = [("id", "grade", "place", "title")]
    for paper in papers:
        if not paper.places:
            rows.append((str(paper.id), "open", "", paper.title))
        elif not only_open:
            rows += [(str(paper.id), place.grade, place.text, paper.title) for place in paper.places]
    return "\n".join([*text_table(rows, "<<<<"), "", *text_table(count_rows(papers), "<>>>>>")])


def count_rows(papers: Sequence[RegisteredPaper]) -> list[tuple[str, ...]]:
    """Return the table of counts: papers per class and grade, with a header and a total."""
    rows: list[tuple[str, ...]] = [("class", "papers", *GRADES)]
    for area in [*sorted({paper.area for paper in papers}), "all"]:
        counts = Counter(paper.grade for paper in papers if area in (paper.area, "all"))
        rows.append((area, str(counts.total()), *(str(counts[grade]) for grade in GRADES)))
    return rows


def as_markdown(papers: Sequence[RegisteredPaper]) -> str:
    """Render the page docs/papers.md."""
    lines = [
        *_INTRODUCTION.splitlines(),
        "",
        "## Counts",
        "",
        *markdown_table(count_rows(papers)),
        "",
        "## Register",
        "",
    ]
    rows = [("id", "paper", "class", "place", "grade", "note")]
    for paper in papers:
        head = (str(paper.id), paper.title, paper.area)
        rows += [(*head, linked(place.kind, place.name), place.grade, place.note) for place in paper.places]
        rows += [] if paper.places else [(*head, "", "open", "")]
    return "\n".join([*lines, *markdown_table(rows)]) + "\n"
