"""Tests of a method's cost in the table of a comparison, with given journals of its rounds."""

from flows.compare import cost_of
from models.recipes.comparison import contenders
from tasks.tracking.journal import JournalRow

BUDGET = 5120


def journal(completions: list[int]) -> list[JournalRow]:
    """Return a row for each round, with its completions; a round takes two seconds at ten tokens a second."""
    measured = {"seconds/round": 2.0, "speed/round": 10.0}
    return [
        JournalRow(step, 0, measured | {"rollouts/completions": float(drawn)})
        for step, drawn in enumerate(completions, 1)
    ]


def test_where_rounds_draw_further_prompts_the_table_tells_what_was_drawn_and_not_what_was_granted() -> None:
    _, dapo = contenders(["grpo", "dapo"], [], 2, "sampled_accuracy", budget=BUDGET)
    cost = cost_of(dapo, [journal([800, 900, 1000]), journal([1000, 1100, 1200, 600, 500])])
    assert (cost.rounds, cost.completions) == (4, 3550)  # means: of 3 and 5 rounds, of 2,700 and 4,400
    assert cost.updates == 4 * 4  # four minibatches in each round
    assert (cost.seconds, cost.tokens) == (8.0, 80.0)


def test_where_they_do_not_it_tells_what_was_granted() -> None:
    grpo, _ = contenders(["grpo", "dapo"], [], 2, "sampled_accuracy", budget=BUDGET)
    cost = cost_of(grpo, [journal([512] * 10), journal([512] * 10)])
    assert (cost.rounds, cost.completions, cost.updates, cost.seconds) == (10, BUDGET, 10, 20.0)


def test_prompts_that_are_only_tried_count_too() -> None:
    _, tried = contenders(["grpo", "difficulty_filter"], [], 2, "sampled_accuracy", budget=BUDGET)
    assert tried.recipe.schedule is not None and tried.recipe.schedule.completions == BUDGET
    assert cost_of(tried, [journal([512 + 2048, 512])]).completions == 3072
