"""docs/agents.md from the trainings of the agents' recipes: one row per recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.league.page import line, reason
from benchmarks.league.records import LeagueResult
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe

HEAD = """# Agents: what each recipe learned

This page shows the result of every recipe of the family `agents` (`rewardflow methods --family agents`), and of the
recipes of other families whose policy takes turns with an environment. `python -m benchmarks.league.agents` trains
each recipe to its end, on its own data and from its own warm start. *Start* and *end* are the shares of solved
episodes, or of right answers, before and after the reinforcement learning. They are measured on held-out problems of
the validation split, with a 95 % bootstrap interval over the problems. *Gain* is the difference of end and start,
problem by problem. The verdict is `above` if the intervals of start and end do not overlap, and `above, paired` if
they overlap but the interval of the gain is above zero. Seconds are those of the rounds on one thread. The comment at
the top of a recipe describes how it differs from its paper.
"""
COLUMNS = ("recipe", "paper", "data", "start", "end", "gain", "verdict", "seeds", "completions", "s")


def page(names: Sequence[str], results: Sequence[LeagueResult]) -> str:
    """Render the page.

    Args:
        names: names of the recipes on the page.
        results: results of their trainings; those of other recipes are ignored.
    """
    text = [HEAD, f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    without_gain, failed, missing = [], [], []
    for name in names:
        recipe = load_recipe(name)
        own = [result for result in results if result.recipe == name and result.curve]
        failed += [result for result in results if result.recipe == name and result.failed]
        if not own:
            missing.append(name)
            continue
        row = line(own)
        text.append(_row(name, recipe, own))
        if row.verdict not in ("above", "above, paired"):
            why = reason(find_recipe(name).read_text())
            without_gain.append(f"- {name} ({row.verdict}): {why or 'no reason is given.'}")
    if without_gain:
        text += ["", "## Recipes without a gain", "", *without_gain]
    if failed:
        text += ["", "## Failed", "", *(f"- {result.recipe}, seed {result.seed}: {result.failed}" for result in failed)]
    if missing:
        text += ["", f"No record in this table yet: {', '.join(missing)}."]
    return "\n".join(text) + "\n"


def _row(name: str, recipe: Any, own: Sequence[LeagueResult]) -> str:
    row = line(own)
    paper = recipe.source.title if recipe.source.id is None else f"{recipe.source.title} ({recipe.source.id})"
    gain = f"{row.gain:+.1%}"
    shares = [f"{each:.1%}" for each in (row.start, row.end)]
    cells = (
        f"[{name}](../{find_recipe(name)})", paper, recipe.data.name, *shares, gain, row.verdict, str(len(own)),
        f"{row.completions:,}", f"{row.seconds:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"
