"""The mask admits only listed actions, for every mask of a small action space, with the policy's probabilities."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
import torch

from models.agents.strategies.masked_actions import MaskedActions, ReasoningMode, chosen_action
from models.agents.strategy import Strategic
from models.agents.turn_scorer import ScorerSettings
from models.base.errors import UserError
from models.engines.engine import TokenSampling
from tests.support.tiny_strategies import BYTES, DRAWN, GREEDY, Scripted, ask_of, turns_of

CHANCES = {"north": 0.05, "east": 0.2, "south": 0.45, "west": 0.1, "wait": 0.15, "anything else": 0.05}
LISTED = [action for action in CHANCES if action != "anything else"]
MASKS = [mask for size in range(1, 6) for mask in combinations(LISTED, size)]


def policy(way: str = "") -> Scripted:
    return Scripted(
        lambda text, seed: "anything else", lambda text, said: CHANCES.get(said, 0.9 if said == way else 0.1)
    )


@pytest.mark.parametrize("drawing", [GREEDY, DRAWN, TokenSampling(temperature=50.0, log_probs=False)], ids=str)
def test_over_every_mask_and_many_seeds_no_turn_is_another_than_one_of_the_listed(drawing: TokenSampling) -> None:
    assert len(MASKS) == 31
    for mask in MASKS:
        turns, _ = turns_of(MaskedActions(), policy(), [ask_of("Q", seed, actions=mask) for seed in range(20)], drawing)
        assert set(turns) <= set(mask)


def test_the_greedy_turn_is_the_likeliest_of_those_that_are_admitted() -> None:
    for mask in MASKS:
        (turn,), _ = turns_of(MaskedActions(), policy(), [ask_of("Q", actions=mask)])
        assert turn == max(mask, key=lambda action: CHANCES[action])


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_an_action_is_drawn_by_its_share_of_the_admitted_probability(temperature: float) -> None:
    """The test is exact: it checks which part of [0, 1) gives which action."""
    for mask in MASKS:
        weights = torch.tensor([CHANCES[action] for action in mask], dtype=torch.float64) ** (1 / temperature)
        borders = (weights / weights.sum()).cumsum(0)
        for place, border in enumerate(borders.tolist()):
            logs = torch.tensor([CHANCES[action] for action in mask], dtype=torch.float64).log()
            assert chosen_action(logs, temperature, border - 1e-9) == place
            if place + 1 < len(mask):
                assert chosen_action(logs, temperature, border + 1e-9) == place + 1


@pytest.mark.rotating(of=6)
def test_drawn_over_seeds_actions_are_as_frequent_as_their_chances() -> None:
    mask = ("north", "south", "wait")
    turns, _ = turns_of(MaskedActions(), policy(), [ask_of("Q", seed, actions=mask) for seed in range(4000)], DRAWN)
    counts, total = Counter(turns), sum(CHANCES[action] for action in mask)
    for action in mask:
        share = CHANCES[action] / total
        assert abs(counts[action] / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_the_way_that_the_policy_names_decides_prompt_and_mask_of_the_step() -> None:
    ways = (
        ReasoningMode(name="move", prompt="go", only="north|east"),
        ReasoningMode(name="rest", prompt="stay", only="wa.*"),
    )
    for way, turn in (("move", "east"), ("rest", "wait")):
        asked = policy(way)
        turns, _ = turns_of(MaskedActions(ways=ways), asked, [ask_of("Q", actions=LISTED)])
        assert turns == [turn]
        prompt = "go" if way == "move" else "stay"
        assert {text for text, said in asked.scored if said in CHANCES} == {f"Q|\n{prompt}\n"}
        assert {said for _, said in asked.scored if said in CHANCES} == (
            {"north", "east"} if way == "move" else {"wait"}
        )


def test_a_way_that_admits_nothing_of_what_is_listed_admits_all_of_it() -> None:
    asked = policy()
    turns, _ = turns_of(
        MaskedActions(ways=(ReasoningMode(name="a", only="jump"),)), asked, [ask_of("Q", actions=LISTED)]
    )
    assert turns == ["south"] and {said for _, said in asked.scored} == set(LISTED)


def test_steps_of_different_masks_are_masked_apart() -> None:
    requests = [ask_of("Q", actions=mask) for mask in MASKS]
    turns, consulted = turns_of(MaskedActions(), policy(), requests)
    assert all(turn in mask for turn, mask in zip(turns, MASKS, strict=True))
    assert consulted.spent.calls == sum(map(len, MASKS))


def test_where_nothing_is_listed_or_too_much_it_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match=r"lists no actions; name them as strategy.actions"):
        turns_of(MaskedActions(), policy(), [ask_of("Q")])
    with pytest.raises(UserError, match=r"lists 5 actions, and strategy.most_actions is 4"):
        turns_of(MaskedActions(most_actions=4), policy(), [ask_of("Q", actions=LISTED)])


def test_an_action_longer_than_the_turn_may_be_is_not_taken_while_there_is_another() -> None:
    """`south` is the most probable action, but its five letters and the end do not fit into five tokens."""
    (turn,), _ = turns_of(MaskedActions(), policy(), [ask_of("Q", max_tokens=5, actions=LISTED)])
    assert turn == "east"


POSSIBLE = {"north": 0.9, "east": 0.0, "south": 0.1, "west": 0.5, "wait": 0.3}
"""Probability that each action succeeds at this state."""


class Possible:
    """A critic that knows it."""

    read = 0

    def __init__(self, values: dict[str, float] = POSSIBLE) -> None:
        self.values = values

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        return [self.values[text] for text in BYTES.text(turns)]


def grounded(strategy: MaskedActions, drawing: TokenSampling, count: int, critic: Possible | None = None) -> list[str]:
    strategic = Strategic(policy(), BYTES, strategy, 4096, critic or Possible())
    made = strategic.complete([ask_of("Q", seed, actions=LISTED) for seed in range(count)], drawing)
    return BYTES.text([turn.tokens for turn in made])


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_with_a_scorer_an_action_is_drawn_by_its_probability_times_its_value(weight: float) -> None:
    count, strategy = 1000, MaskedActions(scorer=ScorerSettings(name="critic"), value_weight=weight)
    products = {action: CHANCES[action] * POSSIBLE[action] ** weight for action in LISTED}
    turns = Counter(grounded(strategy, DRAWN, count))
    for action, product in products.items():
        share = product / sum(products.values())
        assert abs(turns[action] / count - share) <= 4 * (share * (1 - share) / count) ** 0.5
    assert grounded(strategy, GREEDY, 1) == [max(products, key=products.__getitem__)]


def test_the_likeliest_action_is_not_taken_where_it_cannot_succeed() -> None:
    """In words `south` is the likeliest action; it rarely succeeds here, so another is taken."""
    assert grounded(MaskedActions(), GREEDY, 1) == ["south"]
    assert grounded(MaskedActions(scorer=ScorerSettings(name="critic"), value_weight=4.0), GREEDY, 1) == ["north"]


def test_equal_values_or_a_weight_of_zero_leave_the_policy_as_it_is() -> None:
    critic = ScorerSettings(name="critic")
    plain = grounded(MaskedActions(), DRAWN, 200)
    assert grounded(MaskedActions(scorer=critic, value_weight=0.0), DRAWN, 200) == plain
    assert grounded(MaskedActions(scorer=critic), DRAWN, 200, Possible(dict.fromkeys(LISTED, 0.5))) == plain
    with pytest.raises(UserError, match="already in its probability"):
        MaskedActions(scorer=ScorerSettings())
