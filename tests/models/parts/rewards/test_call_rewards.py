"""Rewards of calls: partial credit and error categories, in tables computed by hand."""

from collections.abc import Sequence

import pytest
import torch

from models.agents.play.named_calls import Expected
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.rules.call_errors import CallErrors, ErrorTable
from models.parts.rewards.rules.call_match import CallMatch, CallWeights
from models.task_sets.calls import TOOLS
from tests.support.tiny_resources import make_resources

EXPECTED = Expected(tools=TOOLS, name="buy", arguments={"item": "tea", "count": "3"})
PROBLEM = Problem("p", "get 3 tea", EXPECTED.model_dump_json())
EMPTY = Problem("q", "now", Expected(tools={"now": ()}, name="now", arguments={}).model_dump_json())


def said(*turns: str, problem: Problem = PROBLEM, finished: bool = True) -> Rollout:
    """Make an episode whose turns have two tokens each, with one token of the environment between turns."""
    made = tuple(Turn(3 * at, 3 * at + 2, text=turn) for at, turn in enumerate(turns))
    length = 3 * len(turns) - 1
    return Rollout(
        problem, 0, tuple(range(length)), None, "\n".join(turns), finished, episode=RolloutEpisode(turns=made)
    )


# The parts of the credit: whether the name is right; shared parameter names divided by all parameter names of both
# calls; the share of the two values that are right. S is their mean.
TABLE = [
    ('{"name":"buy","arguments":{"item":"tea","count":"3"}}', (1, 1, 1)),
    ('{"name":"buy","arguments":{"item":"tea","count":"4"}}', (1, 1, 1 / 2)),
    ('{"name":"buy","arguments":{"item":"jam","count":"4"}}', (1, 1, 0)),
    ('{"name":"buy","arguments":{"item":"tea"}}', (1, 1 / 2, 1 / 2)),
    ('{"name":"buy","arguments":{"item":"tea","n":"3"}}', (1, 1 / 3, 1 / 2)),
    ('{"name":"buy","arguments":{"item":"tea","count":"3","n":"3"}}', (1, 2 / 3, 1)),
    ('{"name":"buy","arguments":{}}', (1, 0, 0)),
    ('{"name":"mail","arguments":{"item":"tea","count":"3"}}', (0, 1, 1)),
    ('{"name":"mail","arguments":{"to":"ann"}}', (0, 0, 0)),
]


@pytest.mark.parametrize("turn, parts", TABLE)
def test_partial_credit_is_the_enumerated_table(turn: str, parts: Sequence[float]) -> None:
    worth = CallMatch()(make_resources(), [said(turn)])
    assert worth.tolist() == pytest.approx([1.0 + 3.0 * (2.0 * sum(parts) / 3 - 1.0)])
    weights = CallWeights(format=0.5, scale=1.0, name=1.0, parameters=2.0, values=5.0)
    share = (parts[0] + 2 * parts[1] + 5 * parts[2]) / 8
    assert CallMatch(parts=weights)(make_resources(), [said(turn)]).tolist() == pytest.approx([0.5 + 2.0 * share - 1.0])


def test_what_cannot_be_read_or_did_not_end_is_worth_least_and_only_the_last_turn_counts() -> None:
    right, broken = TABLE[0][0], TABLE[0][0][:-1]
    rollouts = [said(broken), said(right, finished=False), said(broken, right), said(right, broken)]
    assert CallMatch()(make_resources(), rollouts).tolist() == [-3.0, -3.0, 4.0, -3.0]
    assert CallMatch()(make_resources(), [said('{"name":"now","arguments":{}}', problem=EMPTY)]).tolist() == [4.0]


def test_weights_move_in_a_straight_line_with_the_updates() -> None:
    reward = CallMatch(begins=CallWeights(scale=1.0, format=0.0), over=10)
    resources = make_resources()
    for updates, expected in ((0, 1.0), (5, 2.0 + 0.5), (10, 4.0), (99, 4.0)):
        resources.learner.updates = updates
        assert reward(resources, [said(TABLE[0][0])]).tolist() == pytest.approx([expected])
    resources.learner.updates = 0


def test_the_worth_of_an_error_stands_at_the_last_token_of_its_turn() -> None:
    table = ErrorTable(right=2.0, unreadable=-5.0, wrong_value=-0.25)
    rollouts = [said("?", TABLE[1][0], TABLE[0][0]), said(TABLE[0][0])]
    [first, second] = CallErrors(table=table).tokens(make_resources(), rollouts)
    assert first.tolist() == [0, -5.0, 0, 0, -0.25, 0, 0, 2.0] and second.tolist() == [0, 2.0]
    assert CallErrors(table=table)(make_resources(), rollouts).tolist() == [-3.25, 2.0]


@pytest.mark.parametrize(
    "turn, category",
    [
        ("?", "unreadable"),
        ('{"name":"no","arguments":{}}', "unknown_tool"),
        ('{"name":"mail","arguments":{}}', "wrong_tool"),
        ('{"name":"buy","arguments":{"item":"tea"}}', "missing_parameter"),
        ('{"name":"buy","arguments":{"item":"tea","count":"3","n":"3"}}', "unknown_parameter"),
        ('{"name":"buy","arguments":{"item":"tea","count":"4"}}', "wrong_value"),
        ('{"name":"buy","arguments":{"item":"tea","count":"3"}}', "right"),
    ],
)
def test_every_category_earns_what_the_table_says(turn: str, category: str) -> None:
    for worth in (-0.5, 0.75):
        reward = CallErrors(table=ErrorTable(**{category: worth}))
        torch.testing.assert_close(reward(make_resources(), [said(turn)]), torch.tensor([worth]))
    plain = Rollout(PROBLEM, 0, (1, 2, 3), None, turn, True)
    assert CallErrors().tokens(make_resources(), [plain])[0].tolist() == [
        0,
        0,
        pytest.approx(vars(ErrorTable())[category]),
    ]


@pytest.mark.parametrize("answer", ["", "{", "[" * 5000])
def test_a_broken_row_of_the_data_costs_its_own_completions_alone(answer: str) -> None:
    right = '{"name":"buy","arguments":{"item":"tea","count":"3"}}'
    rollouts = [said(right, problem=Problem("b", "buy", answer)), said(right)]
    values = CallMatch()(make_resources(), rollouts)
    assert values[0].isnan() and values[1] == 4.0
    [first, second] = CallErrors().tokens(make_resources(), rollouts)
    assert first.isnan().all() and second.tolist() == [0, ErrorTable().right]


def test_a_cut_completion_holds_no_call_and_an_empty_one_no_token() -> None:
    right = '{"name":"buy","arguments":{"item":"tea","count":"3"}}'
    cut, empty = Rollout(PROBLEM, 0, (1, 2), None, right, False), Rollout(PROBLEM, 0, (), None, "", True)
    [first, second] = CallErrors().tokens(make_resources(), [cut, empty])
    assert first.tolist() == pytest.approx([0, ErrorTable().unreadable]) and second.tolist() == []
