"""Tests of the results of the agent recipes: which recipes take part, and what the page reports of each."""

import pytest

from benchmarks.league.agents import FAMILY, PAGE, RESULTS, as_trained, entrants
from benchmarks.league.agents_page import page
from benchmarks.league.page import line, reason
from benchmarks.league.records import LeagueResult, Point, read_all
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe


def trained(start: float, end: float, failed: str = "") -> LeagueResult:
    curve = (
        () if failed else tuple(Point(at, share, (share,) * 40, 0.5, 9.0, 1.0) for at, share in ((0, start), (8, end)))
    )
    return LeagueResult("calculator", 0, 512, 512, 8, 0.0003, curve, failed=failed, seconds=5.0)


@pytest.mark.rotating(of=6)
def test_who_trains_on_data_of_an_environment_takes_part_as_its_recipe_stands() -> None:
    assert "calculator" in entrants() and "grpo" not in entrants()
    ours, own = as_trained("calculator", 1), load_recipe("calculator")
    assert ours.schedule.rounds == own.schedule.rounds and ours.warm_start == own.warm_start and ours.seed == 1


def test_the_page_has_a_line_a_recipe_and_says_what_failed_or_is_missing() -> None:
    text = page(["calculator"], [trained(0.1, 0.6)])
    assert "| calculator | 10.0% [10.0%, 10.0%] | 60.0% [60.0%, 60.0%] | +50.0% [+50.0%, +50.0%] | above |" in text
    assert "## Recipes without a gain" in page(["calculator"], [trained(0.3, 0.3)])
    assert "- calculator, seed 0: no such file" in page(["calculator"], [trained(0, 0, "no such file")])
    assert page(["calculator"], []).endswith("No record in this table yet: calculator.\n")


@pytest.mark.rotating(of=6)
def test_the_page_of_the_guide_is_made_from_the_results_that_are_committed() -> None:
    assert PAGE.read_text() == page(entrants(), read_all(RESULTS))


@pytest.mark.rotating(of=6)
def test_every_agents_recipe_that_does_not_end_above_its_start_says_why() -> None:
    held = [result for result in read_all(RESULTS) if result.curve]
    behind = []
    for name in entrants():
        own = [result for result in held if result.recipe == name]
        if own and line(own).verdict not in ("above", "above, paired"):
            behind.append(name)
    said = [name for name in behind if reason(find_recipe(name).read_text())]
    assert behind == said, f"add '# League: WHY' to the head of {sorted(set(behind) - set(said))} ({FAMILY})"
