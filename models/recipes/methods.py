"""Table of the methods: every recipe with its paper and parts, and every strategy of evaluations with its paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.agents.strategy import Strategy
from models.base.errors import UserError
from models.method.registry import SLOTS, parts
from models.recipes.find import FOLDER, REAL
from models.recipes.load import load_recipe
from models.recipes.tables import text_table


@dataclass(frozen=True)
class Method:
    """One recipe, or one strategy of evaluations, as a line of the table."""

    name: str
    """Name for `rewardflow run`; for a strategy, the name for `rewardflow evaluate`."""
    family: str
    paper: str
    """Title of the source paper, with its number in the catalogue if it has one."""
    slots: tuple[str, ...]
    """Rollouts, rewards, selectors, advantage, objective and reference, by name; empty without reinforcement."""
    file: str
    """Path of its file in the repository."""
    strategy: bool = False
    """Whether it is a strategy of evaluations."""


def methods(folder: Path = FOLDER) -> list[Method]:
    """Return all recipes in `folder` and below, sorted by family and name.

    Raises:
        UserError: one of the files is not a valid recipe, or there are none.
    """
    listed = [_method(file, file.relative_to(folder)) for file in sorted(folder.rglob("*.yaml"))]
    if not listed:
        raise UserError(f"{folder}/: no recipes here; call this where the folder {folder}/ lies, in the repository")
    return sorted(listed, key=lambda method: (method.family or "~", method.name))


def strategies() -> list[Method]:
    """Return the strategies of evaluations that come from a paper, sorted by name."""
    listed = []
    for name, cls in parts("strategy").items():
        strategy = cls()
        assert isinstance(strategy, Strategy)
        if (paper := strategy.source) is not None:
            file = f"{cls.__module__.replace('.', '/')}.py"
            listed.append(Method(name, paper.family, _title(paper.title, paper.id), (), file, strategy=True))
    return listed


def every_method(folder: Path = FOLDER) -> list[Method]:
    """Return recipes and strategies, sorted by family and name. Raises as `methods` does."""
    return sorted([*methods(folder), *strategies()], key=lambda method: (method.family or "~", method.name))


def of_family(listed: Sequence[Method], family: str) -> list[Method]:
    """Return the methods of a family.

    Raises:
        UserError: there are none.
    """
    chosen = [method for method in listed if method.family == family]
    if not chosen:
        families = ", ".join(dict.fromkeys(method.family for method in listed if method.family))
        raise UserError(f"--family: no recipe is of the family {family!r}; there are {families}")
    return chosen


def _method(file: Path, below: Path) -> Method:
    """Read a method from its recipe; `below` is the file's path in recipes/."""
    name = f"{REAL}/{file.stem}" if below.parts[0] == REAL else file.stem
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
        _title(paper.title, paper.id),
        slots if recipe.schedule is not None else (),
        f"recipes/{below.as_posix()}",
    )


def _title(title: str, number: int | None) -> str:
    return f"{title} ({number})" if number is not None else title


def as_text(listed: Sequence[Method]) -> str:
    """Format a table for a terminal: name, slots, family and paper."""
    rows = [("method", "slots", "paper"), *((method.name, _slots(method), _paper(method)) for method in listed)]
    return "\n".join(text_table(rows, "<<<"))


def as_markdown(listed: Sequence[Method]) -> str:
    """Render the page of the guide from the same recipes."""
    lines = [
        "# Methods",
        "",
        "Every method is a recipe over one loop (see recipes.md), or a strategy of `rewardflow evaluate`, which trains",
        "nothing. `rewardflow methods --markdown` makes this page.",
    ]
    for family in dict.fromkeys(method.family for method in listed):
        lines += ["", f"## {family or 'general'}", "", f"| recipe | {' | '.join(SLOTS)} | paper |"]
        lines.append("| --- " * (len(SLOTS) + 2) + "|")
        for method in listed:
            if method.family == family:
                named = method.slots or (("strategy" if method.strategy else ""), *("",) * (len(SLOTS) - 1))
                lines.append(f"| [{method.name}](../{method.file}) | {' | '.join(named)} | {method.paper} |")
    return "\n".join(lines) + "\n"


def _slots(method: Method) -> str:
    nothing = "a strategy: rewardflow evaluate --strategy" if method.strategy else "no reinforcement"
    return " > ".join(method.slots) or nothing


def _paper(method: Method) -> str:
    return f"[{method.family}] {method.paper}" if method.family else method.paper
