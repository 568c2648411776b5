"""`same_prompts`: two rows have the same number exactly if both halves of their hashes are equal."""

import numpy as np
import pytest

from models.datasets.placing import hashes_of, same_prompts


def test_rows_have_one_number_where_their_texts_are_one() -> None:
    texts = ["b", "a", "b", "", "a", "c"]
    numbers = same_prompts(hashes_of(texts))
    assert [[text == other for other in texts] for text in texts] == (numbers[:, None] == numbers).tolist()
    assert sorted(set(numbers.tolist())) == list(range(4))


@pytest.mark.parametrize("seed", range(5))
def test_hashes_that_share_a_half_are_two_prompts(seed: int) -> None:
    halves = np.random.default_rng(seed).integers(0, 3, size=(200, 2)).astype(np.uint64)
    numbers = same_prompts(halves)
    assert ((halves[:, None] == halves).all(-1) == (numbers[:, None] == numbers)).all()
    assert set(numbers.tolist()) == set(range(len({tuple(row) for row in halves.tolist()})))


def test_no_rows_have_no_numbers() -> None:
    assert same_prompts(hashes_of([])).shape == (0,)
