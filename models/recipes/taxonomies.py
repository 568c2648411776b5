"""Taxonomies of surveys, recipes/taxonomies.tsv: for each leaf of an axis its parts, or "not here" and the reason.

    survey  axis       leaf          places                               note
    288     structure  tree          rollouts tree_search; rollouts tree
    288     structure  nested        not here                             a node is a text, ...

A place is a kind and a name, as in `models.recipes.places`; `setting` (a key of a recipe) and `data` (a kind of data)
are two further kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.base.errors import UserError
from models.recipes.find import PACKAGED
from models.recipes.papers import REGISTER, registered_papers
from models.recipes.places import KINDS, linked
from models.recipes.tables import markdown_table, table_rows

TAXONOMIES = PACKAGED / "taxonomies.tsv"
COLUMNS = ("survey", "axis", "leaf", "places", "note")
WITHOUT_FILE = ("setting", "data")
"""Kinds of places that are not files: a key of a recipe, and a kind of data."""
NOT_HERE = "not here"
_INTRODUCTION = """\
# Taxonomies of surveys

This page lists the axes by which surveys order the field, with the part, recipe or setting that is each leaf. Use it to
find the parts for a kind of method, and to see what is not here. For example, survey 288 has an axis `strategy`, in
which Monte-Carlo tree search is the part `tree_search`. These commands print all axes, and the settings of the part:

    rewardflow methods --taxonomies
    rewardflow parts tree_search

A leaf names parts of slots (see [parts](parts/README.md)), or it is "not here", with the reason. A `setting` is a key
of a recipe. The table is the file [recipes/taxonomies.tsv](../recipes/taxonomies.tsv); a test checks that every name in
it exists. `rewardflow methods --taxonomies --markdown` makes this page. The surveys were read as abstracts. The words
for axes and leaves, and leaves that an abstract does not name, are this project's own. [papers.md](papers.md) lists all
papers.
"""


@dataclass(frozen=True)
class Leaf:
    """One leaf of an axis."""

    name: str
    places: tuple[tuple[str, str], ...]
    """Kind and name of each place; empty if the leaf is not here."""
    note: str
    """Reason why the leaf is not here, or a limit of its parts."""


@dataclass(frozen=True)
class SurveyAxis:
    """One axis of a survey."""

    name: str
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Taxonomy:
    """The axes of one survey."""

    id: int
    title: str
    axes: tuple[SurveyAxis, ...]


def registered_taxonomies(file: Path = TAXONOMIES, register: Path = REGISTER) -> list[Taxonomy]:
    """Read the taxonomies, in the order of the file; the titles are those of the register of papers.

    Raises:
        UserError: a row is not valid. Whether the places exist is not checked.
    """
    titles = {paper.id: paper.title for paper in registered_papers(register)}
    surveys: dict[int, dict[str, dict[str, Leaf]]] = {}
    for at, cells in table_rows(file, COLUMNS):
        if not cells["survey"].isdecimal() or int(cells["survey"]) not in titles:
            raise UserError(f"{at}, column survey: {cells['survey']!r} is not the number of a paper in {register.name}")
        for column in ("axis", "leaf"):
            if not cells[column].strip():
                raise UserError(f"{at}, column {column}: it is empty; write its name")
        leaves = surveys.setdefault(int(cells["survey"]), {}).setdefault(cells["axis"], {})
        if cells["leaf"] in leaves:
            raise UserError(f"{at}, column leaf: {cells['leaf']!r} is twice in the axis {cells['axis']!r}; delete one")
        leaves[cells["leaf"]] = Leaf(cells["leaf"], _places(at, cells), cells["note"])
    return [
        Taxonomy(
            number, titles[number], tuple(SurveyAxis(name, tuple(leaves.values())) for name, leaves in axes.items())
        )
        for number, axes in surveys.items()
    ]


def _places(at: str, cells: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return kinds and names of a row; raises `UserError` for an unknown kind, or "not here" without a reason."""
    if cells["places"] == NOT_HERE:
        if not cells["note"].strip():
            raise UserError(f"{at}, column note: it is empty; write why the leaf is not here")
        return ()
    pairs = []
    for place in cells["places"].split("; "):
        kind, _, name = place.partition(" ")
        if kind not in (*KINDS, *WITHOUT_FILE) or not name:
            known = ", ".join((*KINDS, *WITHOUT_FILE))
            raise UserError(f"{at}, column places: {place!r} is not a kind and a name; the kinds are {known}")
        pairs.append((kind, name))
    return tuple(pairs)


def as_text(taxonomies: Sequence[Taxonomy]) -> str:
    """Format the taxonomies for a terminal: a block per survey, a line per leaf."""
    lines = []
    for taxonomy in taxonomies:
        lines += ["", f"{taxonomy.title} ({taxonomy.id})"]
        width = max(len(leaf.name) for axis in taxonomy.axes for leaf in axis.leaves)
        for axis in taxonomy.axes:
            lines.append(f"  {axis.name}")
            for leaf in axis.leaves:
                places = "; ".join(f"{kind} {name}" for kind, name in leaf.places) or NOT_HERE
                lines.append(f"    {leaf.name:<{width}}  {places}{f' ({leaf.note})' if leaf.note else ''}")
    return "\n".join(lines[1:])


def as_markdown(taxonomies: Sequence[Taxonomy]) -> str:
    """Render the page docs/taxonomies.md."""
    lines = _INTRODUCTION.splitlines()
    for taxonomy in taxonomies:
        lines += ["", f"## Survey {taxonomy.id}", "", f"{taxonomy.title}.", ""]
        rows = [("axis", "leaf", "here", "note")]
        for axis in taxonomy.axes:
            for leaf in axis.leaves:
                places = "; ".join(_markdown(kind, name) for kind, name in leaf.places) or NOT_HERE
                rows.append((axis.name, leaf.name, places, leaf.note))
        lines += markdown_table(rows)
    return "\n".join(lines) + "\n"


def _markdown(kind: str, name: str) -> str:
    return f"{kind}: `{name}`" if kind in WITHOUT_FILE else linked(kind, name)
