"""The order of prompts is drawn independently of the samples of a round."""

import torch

from models.base.seeds import choice_seed, round_seed, second_sampling_seed, seed_of
from models.learner.supervised import shuffled_batches
from models.method.curriculum import _order

ROUNDS = 400


def test_no_epochs_order_is_drawn_by_the_seed_of_a_rounds_sampling() -> None:
    for seed in range(4):
        sampling = [round_seed(seed, number) for number in range(ROUNDS)]
        drawn = {made for seed in sampling for made in (seed, choice_seed(seed), second_sampling_seed(seed), 2 * seed)}
        orders = {
            tuple(torch.randperm(50, generator=torch.Generator().manual_seed(rollout)).tolist())
            for rollout in sorted(drawn)
        }
        for epoch in range(20):
            assert tuple(_order(50, seed, "order", epoch).tolist()) not in orders
            assert tuple(next(shuffled_batches(50, 50, seed))) not in orders


def test_purposes_seeds_and_numbers_have_seeds_apart_that_a_generator_sees_whole() -> None:
    made = [seed_of(seed, name, number) for seed in range(5) for name in ("order", "batches") for number in range(20)]
    assert len(set(made)) == len(made) and all(0 <= rollout < 2**32 for rollout in made)
    assert seed_of(1, "order", 12) != seed_of(11, "order", 2)
