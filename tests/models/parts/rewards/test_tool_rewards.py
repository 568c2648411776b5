"""Rewards of episodes with tools: costs, similarity and levels, with every value computed by hand."""

from dataclasses import replace

import pytest

from models.answers.likeness import likeness
from models.method.episode import Turn
from models.method.rollout import Rollout
from models.parts.rewards.episodes.cost import EpisodeCost
from models.parts.rewards.episodes.hierarchical import Hierarchical
from models.parts.rewards.rules.similarity import Similarity
from tests.support.tiny_models import scored
from tests.support.tiny_resources import CODEC, make_resources


def episode(*turns: tuple[str, str], answer: str = "7", finished: bool = True) -> Rollout:
    """Make an episode whose turns have three tokens each, with the environment's answer to each turn."""
    base = scored([0.0], [1]).rollouts[0]
    said = tuple(Turn(4 * place, 4 * place + 3, text=text, response=heard) for place, (text, heard) in enumerate(turns))
    return replace(
        base,
        completion=(5,) * (4 * len(turns) - 1),
        episode=replace(base.episode, turns=said),
        text="\n".join(text for text, _ in turns),
        problem=replace(base.problem, answer=answer),
        finished=finished,
    )


def test_a_cost_is_the_price_of_calls_and_of_tokens_heard_and_written() -> None:
    made = [
        episode(("small: 3", "4"), ("large: 3", "4 + 5"), ("#### 7", "")),
        episode(("#### 7", "")),
        episode(("large: 3", "error: 4"), ("other: 3", "4")),
    ]
    heard = len(CODEC.inside(["4 + 5"])[0])
    values = EpisodeCost(calls={"small": 0.1, "large": 0.5}, outputs={"large": 0.01}, written=0.001)(
        make_resources(), made
    )
    failed = len(CODEC.inside(["error: 4"])[0])
    expected = [-(0.6 + 0.01 * heard + 0.009), -0.003, -(0.5 + 0.01 * failed + 0.006)]
    assert values.tolist() == pytest.approx(expected, abs=1e-6)
    assert EpisodeCost()(make_resources(), made).tolist() == [0.0, 0.0, 0.0]


def test_levels_are_form_then_answer_then_tools_that_both_answered() -> None:
    made = [
        episode(("search: 3", "4"), ("calculator: 4", "7"), ("#### 7", "")),
        episode(("search: 3", "4"), ("search: 4", "7"), ("#### 7", "")),
        episode(("search: 3", "error: no"), ("calculator: 4", "7"), ("#### 7", "")),
        episode(("search: 3", "4"), ("calculator: 4", "7"), ("#### 8", "")),
        episode(("search: 3", "4"), ("calculator: 4", "7")),
        episode(("#### 7", ""), finished=False),
    ]
    values = Hierarchical(bonus=0.1, malformed=1.0)(make_resources(), made)
    assert values.tolist() == pytest.approx([1.1, 1.0, 1.0, 0.0, -1.0, -1.0])


def test_calls_in_tags_count_where_their_tools_do() -> None:
    search, other, calculator = (
        f'<tool_call>{{"name": "{name}", "arguments": {{"x": "3"}}}}</tool_call>'
        for name in ("search", "other", "calculator")
    )
    made = [
        episode((search, "4"), (calculator, "7"), ("#### 7", "")),
        episode((search, "4"), (other, "7"), ("#### 7", "")),
        episode((other, "4"), ("<tool_call>{}</tool_call>", "7"), ("#### 7", "")),
    ]
    assert Hierarchical(bonus=0.1)(make_resources(), made).tolist() == pytest.approx([1.1, 1.0, 1.0])


def test_a_call_too_deep_to_be_read_calls_nothing_that_there_is() -> None:
    deep = f'<tool_call>{{"name": "search", "arguments": {"[" * 5000}{"]" * 5000}}}</tool_call>'
    made = [episode((deep, "error: no"), ("#### 7", "")), episode(("search: 3", "4"), ("#### 7", ""))]
    assert Hierarchical()(make_resources(), made).tolist() == [1.0, 1.0]
    assert EpisodeCost(calls={"search": 0.5})(make_resources(), made).tolist() == [0.0, -0.5]


def test_likeness_is_one_for_the_reference_and_falls_with_what_is_lost() -> None:
    for metric in ("bleu", "chrf"):
        assert likeness("river red", "river red", metric) == pytest.approx(1.0)
        assert likeness("quux", "river red", metric) == pytest.approx(0.0, abs=0.02)
    assert 0.3 < likeness("red river", "river red", "chrf") < 1.0
    # Half of the single words match and no pair does: sqrt(1/2 * 1/2), as smoothing gives the pairs one half.
    assert likeness("river blue", "river red", "bleu") == pytest.approx((0.5 * 0.5) ** 0.5, abs=1e-6)


def test_a_translation_is_worth_its_likeness_and_nothing_where_none_is_stated() -> None:
    made = [
        episode(("#### river red", ""), answer="river red"),
        episode(("river red", ""), answer="river red"),
        episode(("#### river red", ""), answer="river red", finished=False),
    ]
    assert Similarity()(make_resources(), made).tolist() == pytest.approx([1.0, 0.0, 0.0])
