"""Packed rows: they contain every completion once, stay within the budget, and keep related completions together."""

import random
from collections.abc import Sequence

import pytest
import torch

from models.base.errors import UserError
from models.learner.layout import Prefix, Span, allowed
from models.learner.packing import Sequences, cut_into_rows, pack, pack_shares, packed_row


def drawn(seed: int, rows: int = 40) -> Sequences:
    chance = random.Random(seed)
    prompts = [[chance.randint(2, 9) for _ in range(chance.randint(1, 9))] for _ in range(8)]
    chosen = [prompts[chance.randrange(8)] for _ in range(rows)]
    return Sequences(chosen, [[chance.randint(2, 9) for _ in range(chance.randint(1, 12))] for _ in range(rows)])


def tokens_of(sequences: Sequences, row: Sequence[int]) -> int:
    taken = sequences.take(row)
    return sum(map(len, {tuple(prompt) for prompt in taken.prompts})) + sum(map(len, taken.completions))


def test_a_row_by_hand() -> None:
    row = packed_row(Sequences([[5, 6], [9], [5, 6]], [[7], [8, 4], [3, 2, 1]]))
    assert row.ids.tolist() == [5, 6, 7, 3, 2, 1, 9, 8, 4]
    assert row.positions.tolist() == [0, 1, 2, 2, 3, 4, 0, 1, 2]
    assert row.layout.spans == (Span(0, 2), Span(2, 1), Span(3, 3), Span(6, 3))
    assert row.layout.prefixes == (Prefix(0, 2, 2, 6),)
    assert row.targets.tolist() == [7, 8, 4, 3, 2, 1]
    assert row.predicting.tolist() == [1, 6, 7, 1, 3, 4]  # the 6 of the prompt 5 6 predicts both its completions
    assert row.last.tolist() == [2, 8, 5]


def test_what_a_token_may_look_at_by_hand() -> None:
    row = packed_row(Sequences([[5, 6], [5, 6]], [[7], [3, 2]]))
    place = torch.device("cpu")
    seen = ["10000", "11000", "11100", "11010", "11011"]
    assert allowed(row.layout, place, None).int().tolist() == [[int(mark) for mark in line] for line in seen]
    narrow = ["10000", "11000", "01100", "01010", "00011"]  # a window of two: the token itself and the one before it
    assert allowed(row.layout, place, 2).int().tolist() == [[int(mark) for mark in line] for line in narrow]


@pytest.mark.parametrize("budget", [21, 30, 64, 1000])
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_hold_every_completion_once_and_stay_within_the_budget(budget: int, seed: int) -> None:
    sequences = drawn(seed)
    rows = pack(sequences, budget, width=64)
    assert sorted(index for row in rows for index in row) == list(range(len(sequences)))
    assert all(tokens_of(sequences, row) <= budget for row in rows)
    assert rows == pack(sequences, budget, width=64)


def test_a_group_that_fits_costs_its_prompt_once() -> None:
    sequences = Sequences([[2] * 100] * 16, [[3] * 10] * 16)
    assert len(packed_row(sequences).ids) == 100 + 16 * 10
    assert pack(sequences, 260, width=64) == [list(range(16))]
    assert [tokens_of(sequences, row) for row in pack(sequences, 150, width=64)] == [150, 150, 150, 110]


def test_rows_are_nearly_full() -> None:
    chance = random.Random(3)
    lengths = [chance.randint(16, 512) for _ in range(300)]
    sequences = Sequences([[index, 1] for index in range(300)], [[3] * (length - 2) for length in lengths])
    rows = pack(sequences, 2048, width=64)
    assert sum(lengths) / (len(rows) * 2048) > 0.97


@pytest.mark.parametrize("seed", [0, 1])
def test_a_row_that_is_filled_gets_no_further_prompt_and_no_prompt_is_repeated_for_that(seed: int) -> None:
    sequences = drawn(seed)
    (whole,) = pack_shares(sequences, 200, 1, width=64)
    (rows,) = pack_shares(sequences, 200, 1, width=64, filled=30)

    def prompts(row: list[int]) -> set[tuple[int, ...]]:
        return {tuple(sequences.prompts[index]) for index in row}

    assert len(rows) > len(whole)
    assert sorted(index for row in rows for index in row) == list(range(len(sequences)))
    assert all(tokens_of(sequences, row) <= 30 or len(prompts(row)) == 1 for row in rows)
    assert sum(len(prompts(row)) for row in rows) == sum(len(prompts(row)) for row in whole)


def test_what_belongs_together_is_never_parted() -> None:
    sequences = Sequences([[2, 3]] * 4, [[4] * size for size in (5, 1, 1, 5)])

    def parted(rows: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        return [row for row in rows if any(index + 1 - 2 * (index % 2) not in row for index in row)]

    assert parted(pack(sequences, 9, width=64))
    assert not parted(pack(sequences, 9, width=64, together=[0, 0, 1, 1]))


def test_a_budget_smaller_than_a_row_is_refused_with_the_one_that_is_needed() -> None:
    sequences = Sequences([[2] * 30, [3]], [[4] * 12, [5]])
    with pytest.raises(
        UserError, match=r"schedule\.token_budget is 41, smaller than one row: a prompt of 30 .* least 42"
    ):
        pack(sequences, 41, width=64, setting="schedule.token_budget")
    pairs = Sequences([[2] * 10] * 2, [[4] * 12, [5] * 9])
    with pytest.raises(UserError, match="the 2 completions that belong together of 21; make it at least 31"):
        pack(pairs, 30, width=64, together=[0, 0])


def test_no_sequences_give_no_rows() -> None:
    assert pack(Sequences([], []), 10, width=64) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_the_rows_of_some_sequences_are_those_of_a_set_of_these_alone(seed: int) -> None:
    sequences = drawn(seed)
    some = random.Random(seed).sample(range(len(sequences)), 17)
    rows = list(cut_into_rows(sequences, 40, width=64, among=some))
    assert [indices for indices, _ in rows] == [
        [some[position] for position in row] for row in pack(sequences.take(some), 40, width=64)
    ]
    assert all(row == sequences.take(indices) for indices, row in rows)


def test_without_a_choice_the_rows_are_those_of_all_sequences() -> None:
    sequences = drawn(0)
    rows = list(cut_into_rows(sequences, 30, width=64))
    assert [indices for indices, _ in rows] == pack(sequences, 30, width=64)
    assert all(row == sequences.take(indices) for indices, row in rows)


def test_labels_of_some_sequences_are_theirs_and_not_those_of_their_places() -> None:
    sequences = Sequences([[2, 3]] * 6, [[4] * size for size in (1, 1, 5, 1, 1, 5)])
    pairs = [0, 0, 1, 1, 2, 2]  # among the last four, 2 belongs with 3 and 4 with 5
    rows = [indices for indices, _ in cut_into_rows(sequences, 9, width=64, among=[2, 4, 3, 5], together=pairs)]
    assert sorted(map(sorted, rows)) == [[2, 3], [4, 5]]


def test_no_choice_at_all_gives_no_rows() -> None:
    assert list(cut_into_rows(drawn(0), 30, width=64, among=[])) == []
