"""docs/agents.md from the trainings of the agents' recipes: one line a recipe, by its environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.league.page import line, reason
from benchmarks.league.records import LeagueResult
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe

HEAD = """# Agents: what each recipe learned

Every recipe of the family `agents` (`rewardflow methods --family agents`), trained to its end by
`python -m benchmarks.league.agents` on the data of its own environment, from its own warm start. *Start* and *end* are
shares of solved episodes, or of right answers, on held-out problems of the validation split, which training never saw,
with a 95 % bootstrap interval over the problems; *gain* is end less start of the same problems. Seconds are those of
the rounds on one thread. The head of a recipe describes what replaces what its paper used.
"""
COLUMNS = ("recipe", "paper", "data", "start", "end", "gain", "verdict", "seeds", "completions", "s")


def page(names: Sequence[str], results: Sequence[LeagueResult]) -> str:
    """Render the page.

    Args:
        names: of the recipes that it is about.
        results: of their trainings, and maybe of others.
    """
    text = [HEAD, f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    behind, failed, missing = [], [], []
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
            said = reason(find_recipe(name).read_text())
            behind.append(f"- {name} ({row.verdict}): {said or 'its recipe does not say.'}")
    if behind:
        text += ["", "## Not above, and why", "", *behind]
    if failed:
        text += ["", "## Failed", "", *(f"- {result.recipe}, seed {result.seed}: {result.failed}" for result in failed)]
    if missing:
        text += ["", f"Not trained yet: {', '.join(missing)}."]
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
