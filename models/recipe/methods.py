"""What methods there are: every recipe of a folder, with its paper and the parts that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import UserError
from models.parts import SLOTS
from models.recipe.find import FOLDER
from models.recipe.load import load_recipe


@dataclass(frozen=True)
class Method:
    """One recipe, as a line of a table."""

    name: str
    """As `rewardflow run` takes it: below recipes/, without its ending."""
    family: str
    paper: str
    """Title of the source paper, with its number in the catalogue where it has one."""
    slots: tuple[str, ...]
    """Rollouts, rewards, selectors, advantage, objective and reference, by name; empty where nothing is reinforced."""


def methods(folder: Path = FOLDER) -> list[Method]:
    """Every recipe of `folder` and of the folders below it, by family and name.

    Raises:
        UserError: one of them is no recipe, or there are none.
    """
    files = sorted(folder.rglob("*.yaml"))
    listed = [_method(file, file.relative_to(folder).with_suffix("").as_posix()) for file in files]
    if not listed:
        raise UserError(f"{folder}/: no recipes here; call this where the folder {folder}/ lies, in the repository")
    return sorted(listed, key=lambda method: (method.family or "~", method.name))


def of_family(listed: Sequence[Method], family: str) -> list[Method]:
    """Those of a family.

    Raises:
        UserError: there are none.
    """
    chosen = [method for method in listed if method.family == family]
    if not chosen:
        families = ", ".join(dict.fromkeys(method.family for method in listed if method.family))
        raise UserError(f"--family: no recipe is of the family {family!r}; there are {families}")
    return chosen


def _method(file: Path, name: str) -> Method:
    recipe = load_recipe(file)
    paper = recipe.source
    slots = (
        recipe.rollouts.name,
        " + ".join(reward.name for reward in recipe.rewards),
        " + ".join(select.name for select in recipe.select),
        recipe.advantage.name,
        recipe.objective.name,
        recipe.reference.name,
    )
    return Method(
        name,
        paper.family,
        f"{paper.title} ({paper.id})" if paper.id is not None else paper.title,
        slots if recipe.schedule is not None else (),
    )


def as_text(listed: Sequence[Method]) -> str:
    """A table for a terminal: name, slots, family and paper."""
    rows = [("method", "slots", "paper"), *((method.name, _slots(method), _paper(method)) for method in listed)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_markdown(listed: Sequence[Method]) -> str:
    """The page of the guide, made from the same recipes."""
    lines = [
        "# Methods",
        "",
        "Every method is a recipe over one loop (see recipes.md). `rewardflow methods --markdown` makes this page.",
    ]
    for family in dict.fromkeys(method.family for method in listed):
        lines += ["", f"## {family or 'general'}", "", f"| recipe | {' | '.join(SLOTS)} | paper |"]
        lines.append("| --- " * (len(SLOTS) + 2) + "|")
        for method in listed:
            if method.family == family:
                parts = method.slots or ("",) * len(SLOTS)
                link = f"[{method.name}](../recipes/{method.name}.yaml)"
                lines.append(f"| {link} | {' | '.join(parts)} | {method.paper} |")
    return "\n".join(lines) + "\n"


def _slots(method: Method) -> str:
    return " > ".join(method.slots) or "no reinforcement"


def _paper(method: Method) -> str:
    return f"[{method.family}] {method.paper}" if method.family else method.paper
