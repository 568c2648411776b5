"""A reward model of gaps: each pair is trained after either of its completions, and self-gaps are anchored at 0."""

import itertools
import math
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.parts.feedback.verdict import VerdictFeedback
from models.parts.rollouts.improved import Improved
from models.recipes.load import load_recipe
from models.reward_models.fit import Pair, RewardModelSettings, accumulate, fit_reward_model, score_pairs
from models.reward_models.gap import GapPair, GapRows
from models.text.token_rows import rows_in_memory
from tests.support.scripted_engine import Scripted
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import CODEC, make_resources
from tests.support.tiny_reward_models import tiny_reward_model, toy_pairs

CONTEXT = "{prompt} {shown} ; {prompt}"


def behind(pair: Pair, anchor: float) -> list[Pair]:
    """Return the pair twice: with the rejected and with the chosen completion in the context."""
    contexts = [[*pair.prompt, *shown, *pair.prompt] for shown in (pair.rejected, pair.chosen)]
    answers = [[pair.chosen], [pair.rejected]]
    rows = GapRows(
        *(rows_in_memory([[ids]]) for ids in contexts), *map(rows_in_memory, [[a] for a in answers]), anchor=anchor
    )
    return list(rows)


def test_each_preference_stands_behind_either_of_its_completions() -> None:
    rows = GapRows(
        rows_in_memory([[[1, 21], [2, 22]]]), rows_in_memory([[[1, 11], [2, 12]]]),
        rows_in_memory([[[11], [12]]]), rows_in_memory([[[21], [22]]]), anchor=0.3,
    )  # fmt: skip
    assert len(rows) == 4
    assert rows[0] == GapPair([1, 21], [11], [21], reference="rejected", anchor=0.3)
    assert rows[3] == GapPair([2, 12], [12], [22], reference="chosen", anchor=0.3) == rows[-1]
    assert list(rows[1:3]) == [rows[1], rows[2]] and rows[2].prompt == [2, 22]
    with pytest.raises(IndexError):
        rows[4]


def test_what_is_held_against_itself_is_anchored_and_nothing_else() -> None:
    assert GapPair([1], [2], [3], reference="chosen", anchor=0.5).anchors == (0.5, 0.0)
    assert GapPair([1], [2], [3], reference="rejected", anchor=0.5).anchors == (0.0, 0.5)
    assert Pair([1], [2], [3]).anchors == (0.0, 0.0)


def test_the_loss_is_that_of_two_pairs_and_the_squared_gaps_to_oneself() -> None:
    model = tiny_reward_model(torch.float64)
    with torch.no_grad():
        model.score.weight.mul_(30)
    pairs = [each for pair in toy_pairs(5, seed=1) for each in behind(pair, 0.25)]
    watched = accumulate(model, pairs, RewardModelSettings(token_budget=40))
    chosen, rejected = (scores.double().tolist() for scores in score_pairs(model, pairs))
    total = 0.0
    for place, (better, worse) in enumerate(zip(chosen, rejected, strict=True)):
        own = better if place % 2 else worse  # every second pair has its chosen completion in the context
        total += math.log1p(math.exp(worse - better)) + 0.25 * own**2
    assert float(watched["loss"]) == pytest.approx(total / 10, abs=1e-5)


def test_without_an_anchor_the_plain_loss_and_gradient_are_left_bit_for_bit() -> None:
    plain, gaps = tiny_reward_model(), tiny_reward_model()
    pairs = [each for pair in toy_pairs(4, seed=1) for each in behind(pair, 0.0)]
    assert accumulate(gaps, pairs, RewardModelSettings()) == accumulate(
        plain, [Pair(each.prompt, each.chosen, each.rejected) for each in pairs], RewardModelSettings()
    )
    both = zip(plain.parameters(), gaps.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in both if a.grad is not None)


@pytest.mark.rotating(of=6)
def test_a_fit_orders_gaps_as_the_paper_asks() -> None:
    model, last = tiny_reward_model(), OptimiserSettings(learning_rate=5e-3, warmup_steps=5)
    preferences = [Pair([*ids], [7, 1], [8, 1]) for ids in itertools.product(range(10, 18), repeat=2)]
    pairs = [each for pair in preferences for each in behind(pair, 0.3)]
    fit_reward_model(model, pairs, RewardModelSettings(steps=40, batch_pairs=32, optimiser=last), seed=0)
    chosen, rejected = (scores.view(-1, 2).mean(0).tolist() for scores in score_pairs(model, pairs))
    better, own_chosen, own_rejected, worse = chosen[0], chosen[1], rejected[0], rejected[1]
    assert better > max(own_rejected, own_chosen) + 1 and worse < min(own_rejected, own_chosen) - 1
    assert abs(own_chosen) < 0.5 and abs(own_rejected) < 0.5


def test_improvements_are_drawn_and_trained_behind_an_answer_of_the_policys_own() -> None:
    engine: Any = Scripted("#### 8")
    source = Improved(
        prompts=2, group_size=3, max_tokens=8, context=CONTEXT, feedback=VerdictFeedback(right="", wrong="+ {answer}")
    )
    made = source(make_resources(engine), PROBLEMS[:2], 0)
    first = PROBLEMS[0].prompt
    assert engine.asked[0] == [problem.prompt for problem in PROBLEMS[:2]]
    assert engine.asked[1][0] == f"{first} #### 8 + 7 ; {first}"
    assert [(each.group, each.source.origin, each.text) for each in made] == [
        (group, "policy", "3 + 4 #### 7") for group in (0, 0, 0, 1, 1, 1)
    ]
    assert all(each.behaviour_log_probs is not None and each.trained_tokens for each in made)
    assert CODEC.text([made[0].problem.tokens]) == [engine.asked[1][0]] and made[0].problem.prompt == first
    assert source.training_context == CONTEXT and source.largest_group() == 3


def test_a_gap_behind_another_context_than_the_rollouts_is_refused() -> None:
    with pytest.raises(UserError, match="not what completions are trained behind"):
        load_recipe("recipes/self-improvement/pit.yaml", ["rollouts.context='{prompt} then {shown}'"])
    with pytest.raises(UserError, match="not what completions are trained behind"):
        load_recipe("recipes/arithmetic.yaml", ["reward_model.gap={context: '{shown}'}"])
    with pytest.raises(UserError, match="a gap is one of labelled preferences"):
        load_recipe("recipes/self-improvement/pit.yaml", ["reward_model.strength={}"])
