"""Choice of methods by difficulty: known tables, disjoint halves, and no gain where there is none."""

import numpy as np
import pytest
from numpy.typing import NDArray

from models.base.errors import UserError
from models.evaluation.bootstrap import Interval
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.sweep import (
    CellResult,
    SweepCell,
    choose,
    difficulties,
    first_half,
    gain_text,
    in_order,
    shows_gain,
)

COUNT = 400
IDS = [f"p{number}" for number in range(COUNT)]
BINS = ["level 1" if number % 2 else "level 2" for number in range(COUNT)]
EASY = np.array([bin == "level 1" for bin in BINS])
PLAIN, VOTE, BEAM = SweepCell("plain"), SweepCell("vote", "", 4), SweepCell("beam", "process_model", 8)


def measured(cell: SweepCell, easy: float, hard: float, tokens: float = 1.0, noise: int | None = None) -> CellResult:
    """Make a result with the given accuracy on easy and hard problems; with a seed, answers of eight samples."""
    chances = np.where(EASY, easy, hard)
    if noise is not None:
        chances = np.random.default_rng(noise).binomial(8, chances) / 8
    return CellResult(cell, chances, tokens, 0.0, 0.0)


def test_for_each_difficulty_the_best_cell_is_chosen_and_its_gain_is_the_hand_computed_one() -> None:
    """Vote is better on easy problems and beam on hard ones: 0.5 * (0.9 + 0.5) - 0.5 * (0.6 + 0.2) = 0.3."""
    results = [measured(PLAIN, 0.6, 0.2), measured(VOTE, 0.9, 0.2), measured(BEAM, 0.7, 0.5)]
    choice = choose(results, BINS, IDS, 8)
    assert choice.cells == {"level 1": VOTE, "level 2": BEAM}
    second = ~first_half(IDS)
    easy = EASY[second].mean()
    assert choice.over_plain.estimate == pytest.approx(easy * 0.3 + (1 - easy) * 0.3)
    single = {VOTE: 0.9 * easy + 0.2 * (1 - easy), BEAM: 0.7 * easy + 0.5 * (1 - easy)}[choice.single]
    assert choice.over_single.estimate == pytest.approx(0.9 * easy + 0.5 * (1 - easy) - single)
    assert choice.accuracy.estimate == pytest.approx(0.9 * easy + 0.5 * (1 - easy))
    assert shows_gain(choice.over_plain) and shows_gain(choice.over_single)


def test_a_budget_admits_only_cells_of_at_most_as_many_answers() -> None:
    results = [measured(PLAIN, 0.6, 0.2), measured(VOTE, 0.9, 0.2), measured(BEAM, 0.7, 0.5)]
    assert set(choose(results, BINS, IDS, 4).cells.values()) == {VOTE, PLAIN} or set(
        choose(results, BINS, IDS, 4).cells.values()
    ) == {VOTE}
    assert set(choose(results, BINS, IDS, 2).cells.values()) == {PLAIN}


def test_of_equally_good_cells_the_one_that_writes_fewer_tokens_is_chosen() -> None:
    results = [measured(PLAIN, 0.6, 0.2, 9.0), measured(VOTE, 0.6, 0.2, 40.0), measured(BEAM, 0.6, 0.2, 80.0)]
    choice = choose(results, BINS, IDS, 8)
    assert set(choice.cells.values()) == {PLAIN} and choice.tokens == 9.0
    assert gain_text(choice.over_plain) == "no gain shown: +0.0 [+0.0, +0.0]"


def test_the_choice_is_not_changed_by_the_problems_that_confirm_it() -> None:
    generator, second = np.random.default_rng(0), ~first_half(IDS)
    results = [measured(PLAIN, 0.6, 0.2), measured(VOTE, 0.7, 0.2), measured(BEAM, 0.6, 0.4)]
    before = choose(results, BINS, IDS, 8)
    for result in results:
        result.accuracy[second] = generator.random(int(second.sum()))
    after = choose(results, BINS, IDS, 8)
    assert after.cells == before.cells and after.single == before.single and after.accuracy != before.accuracy


@pytest.mark.parametrize("seed", range(5))
def test_among_methods_that_are_all_alike_no_gain_is_shown(seed: int) -> None:
    """The best on the first half has a lucky accuracy there, which the second half does not repeat."""
    cells = [PLAIN, *(SweepCell("vote", f"s{number}", 4) for number in range(12))]
    results = [measured(cell, 0.6, 0.2, noise=100 * seed + number) for number, cell in enumerate(cells)]
    choice, first = choose(results, BINS, IDS, 4), first_half(IDS)
    lucky = np.mean([results[cells.index(choice.cells[BINS[p]])].accuracy[p] for p in np.flatnonzero(first)])
    assert lucky > results[0].accuracy[first].mean(), "the naive gain on the same problems"
    assert choice.over_plain.low < 0.02


def test_the_halves_are_disjoint_equal_in_size_and_depend_on_the_ids_alone() -> None:
    first = first_half(IDS)
    assert first.sum() == COUNT // 2
    shuffled = np.random.default_rng(1).permutation(COUNT)
    again: NDArray[np.bool_] = first_half([IDS[place] for place in shuffled])
    assert (again == first[shuffled]).all()


def records_of(accuracies: list[float], levels: list[int]) -> list[PromptRecord]:
    made = []
    for number, (accuracy, level) in enumerate(zip(accuracies, levels, strict=True)):
        samples = tuple(Completion("", 1, place < 10 * accuracy, True) for place in range(10))
        made.append(PromptRecord(f"p{number}", level, samples, samples[0]))
    return made


def test_difficulty_is_the_level_or_the_bin_of_the_accuracy() -> None:
    records = records_of([1.0, 0.5, 0.4, 0.1, 0.0], [1, 1, 3, 3, 10])
    assert difficulties(records, "accuracy") == ["easy", "easy", "medium", "medium", "hard"]
    assert difficulties(records, "level") == ["level 1", "level 1", "level 3", "level 3", "level 10"]
    assert in_order(["hard", "easy", "medium"]) == ["easy", "medium", "hard"]
    assert in_order(["level 10", "level 2"]) == ["level 2", "level 10"]
    many = difficulties(records_of([0.0] * 12, list(range(1, 13))), "level")
    assert many[6:] == ["level 7", *["level 8 and above"] * 5]
    with pytest.raises(UserError, match=r"these problems have no levels; set sweep\.difficulty=accuracy"):
        difficulties(records_of([0.5], [0]), "level")


def test_a_difficulty_without_problems_in_the_first_half_gets_the_best_single_cell() -> None:
    rare = IDS[int(np.flatnonzero(~first_half(IDS))[0])]
    bins = ["level 9" if identity == rare else "level 1" for identity in IDS]
    results = [measured(PLAIN, 0.6, 0.6), measured(VOTE, 0.9, 0.9)]
    assert choose(results, bins, IDS, 4).cells == {"level 1": VOTE, "level 9": VOTE}
    with pytest.raises(UserError, match="a sweep needs at least 2 problems, and there is 1"):
        choose([CellResult(PLAIN, np.array([1.0]), 1.0, 0.0, 0.0)], ["level 1"], ["p"], 4)


def test_a_gain_is_written_in_percentage_points_with_its_interval() -> None:
    assert gain_text(Interval(0.05, 0.01, 0.09)) == "+5.0 [+1.0, +9.0]"
    assert gain_text(Interval(0.05, -0.01, 0.11)) == "no gain shown: +5.0 [-1.0, +11.0]"
    assert BEAM.label == "beam 8 by process_model" and PLAIN.label == "plain" and VOTE.series == "vote"
