"""Settings of a sweep of evaluation strategies, read from a command's arguments: methods x budgets x scorers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from models.agents.strategy import Strategy
from models.agents.turn_scorer import NO_SCORER, Scorer, ScorerSettings, as_section
from models.base.errors import UserError
from models.evaluation.sweep import PLAIN, SweepCell
from models.method.registry import parts, slot_type
from models.recipes.strategy import CONFIG, read_section

KEY: Literal["sweep"] = "sweep"
"""Key below which overrides are settings of the sweep."""
STRATEGIES = ("vote", "best_of_n", "beam", "refine_tree")
BUDGETS = (2, 4, 8)
MOST_CELLS = 200


@dataclass(frozen=True)
class SweepSettings:
    """Settings of a sweep."""

    strategies: tuple[Strategy, ...]
    budgets: tuple[int, ...]
    """Answers per turn, ascending."""
    scorers: tuple[ScorerSettings, ...]
    difficulty: Literal["auto", "level", "accuracy"]
    """auto: the level if the data state levels, and the accuracy otherwise."""

    def cells(self) -> list[tuple[SweepCell, Strategy]]:
        """Return the cells with their strategies; the first is the policy's own answer.

        A strategy without a budget is a single cell, whose budget is its largest number of calls per turn. With one
        answer per turn every strategy is the policy's own answer, so that budgets of 1 have no further cells.

        Raises:
            UserError: there are more than MOST_CELLS cells, or two cells with one name.
        """
        made: list[tuple[SweepCell, Strategy]] = [(SweepCell(PLAIN), _named(PLAIN))]
        for strategy in self.strategies:
            if strategy.name == PLAIN:
                continue
            for scored, scorer in self._scored(strategy):
                sized = [(budget, scored.at_budget(budget)) for budget in self.budgets if budget > 1]
                sizes = {budget: size for budget, size in sized if size is not None} or {scored.most_calls: scored}
                made += [(SweepCell(strategy.name, scorer, budget), size) for budget, size in sizes.items()]
        if len(made) > MOST_CELLS:
            raise UserError(f"sweep: {len(made)} cells, and {MOST_CELLS} are the most; name fewer budgets or scorers")
        labels = [cell.label for cell, _ in made]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise UserError(f"sweep: two cells are called {min(twice)!r}; name each strategy and budget once")
        return made

    def _scored(self, strategy: Strategy) -> list[tuple[Strategy, str]]:
        """Return the strategy with each scorer that it accepts, and the scorer's name in the cell."""
        if "scorer" not in {item.name for item in dataclasses.fields(strategy)}:  # type: ignore[arg-type]
            return [(strategy, "")]
        names = [scorer.name for scorer in self.scorers]
        wanted = ([NO_SCORER] if strategy.scorer.name == "none" else []) + list(self.scorers)
        made = []
        for scorer in wanted:
            try:
                scored = replace(strategy, scorer=scorer)  # type: ignore[type-var]
            except UserError:  # the strategy needs another scorer
                continue
            folder = f" {scorer.path.rstrip('/').rpartition('/')[2]}" if names.count(scorer.name) > 1 else ""
            made.append((scored, "" if scorer.name == "none" else f"{scorer.name}{folder}"))
        return list(dict.fromkeys(made))


def read_sweep(overrides: Sequence[str]) -> tuple[SweepSettings, list[str]]:
    """Read the settings of a sweep from `overrides`. Returns them, and the recipe's own overrides.

    Args:
        overrides: `key.path=value` each; those below `sweep.` are its settings.

    Raises:
        UserError: a setting is unknown or wrong, or settings of a single strategy are among the overrides.
    """
    single = next((override for override in overrides if override.startswith("strategy.")), None)
    if single is not None:
        raise UserError(
            f"{single.partition('=')[0]}: a sweep has several strategies; write "
            "sweep.strategies=[{name: NAME, KEY: VALUE}]"
        )
    chosen, others = read_section(KEY, _section(), overrides)
    settings = SweepSettings(
        tuple(chosen.strategies), tuple(sorted(set(chosen.budgets))), tuple(chosen.scorers), chosen.difficulty
    )
    settings.cells()
    return settings, others


def _named(name: str) -> Strategy:
    strategy = parts("strategy")[name]()
    assert isinstance(strategy, Strategy)
    return strategy


def _section() -> Any:
    by: Any = Literal["auto", "level", "accuracy"]
    listed: Any = Annotated[slot_type("strategy"), BeforeValidator(as_section)]
    return create_model(
        "Sweep",
        __config__=CONFIG,
        strategies=(Annotated[list[listed], Field(min_length=1)], [_named(name) for name in STRATEGIES]),
        budgets=(Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1)], list(BUDGETS)),
        scorers=(Annotated[list[Scorer], Field(min_length=1)], [ScorerSettings()]),
        difficulty=(by, "auto"),
    )
