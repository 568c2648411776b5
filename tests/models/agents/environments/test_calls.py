"""Calls: every mistake has one category, and the answer to it names the category but not the right call."""

import json
from random import Random

import pytest

from models.agents.environments.calls import Calls
from models.agents.play.named_calls import Expected, category_of, read_named_call
from models.method.problem import Problem
from models.task_sets.calls import TOOLS, call, mistaken

EXPECTED = Expected(tools=TOOLS, name="buy", arguments={"item": "tea", "count": "3"})
RIGHT = '{"name":"buy","arguments":{"item":"tea","count":"3"}}'
CATEGORIES = {
    RIGHT: "right",
    f"<tool_call>\n{RIGHT}\n</tool_call>": "right",
    '{"name":"buy","arguments":{"count":3,"item":"tea"}}': "right",
    RIGHT[:-1]: "unreadable",
    "": "unreadable",
    "buy 3 tea": "unreadable",
    "[1]": "unreadable",
    '{"name":"buy"}': "unreadable",
    '{"name":"buy","arguments":["tea","3"]}': "unreadable",
    '{"name":7,"arguments":{}}': "unreadable",
    f"{RIGHT} {RIGHT}": "unreadable",
    "[" * 1500: "unreadable",
    '{"name":"sell","arguments":{"item":"tea","count":"3"}}': "unknown_tool",
    '{"name":"mail","arguments":{"item":"tea","count":"3"}}': "wrong_tool",
    '{"name":"buy","arguments":{"item":"tea"}}': "missing_parameter",
    '{"name":"buy","arguments":{"item":"tea","n":"3"}}': "missing_parameter",
    '{"name":"buy","arguments":{"item":"tea","count":"3","n":"3"}}': "unknown_parameter",
    '{"name":"buy","arguments":{"item":"tea","count":"4"}}': "wrong_value",
    '{"name":"buy","arguments":{"item":null,"count":"3"}}': "wrong_value",
}


@pytest.mark.parametrize("turn", CATEGORIES)
def test_a_call_has_the_first_category_that_holds(turn: str) -> None:
    assert category_of(turn, EXPECTED) == CATEGORIES[turn]


def test_mistakes_of_demonstrations_are_of_every_category_and_never_right() -> None:
    random = Random(1)
    made = {category_of(mistaken(random, EXPECTED), EXPECTED) for _ in range(200)}
    assert made == {"unreadable", "unknown_tool", "wrong_tool", "missing_parameter", "wrong_value"}


def test_an_error_names_its_category_and_nothing_that_would_be_right() -> None:
    problem = Problem("p", "get 3 tea", EXPECTED.model_dump_json())
    for turn, category in CATEGORIES.items():
        opened = Calls(tries=2).open(problem)
        said, reward, over, _, info = opened.step(turn)
        assert said == ("" if category == "right" else f"error: {category.replace('_', ' ')}")
        assert (reward, over, info["solved"]) == ((1.0, True, True) if category == "right" else (0.0, False, False))
        if not over:
            assert opened.step(turn)[2]


def test_a_call_is_read_as_it_is_written() -> None:
    read = read_named_call(call("mail", {"to": "ann", "text": 'a "b" é'}))
    assert read is not None and dict(read.arguments) == {"to": "ann", "text": 'a "b" é'}
    assert json.loads(EXPECTED.model_dump_json())["arguments"] == {"item": "tea", "count": "3"}
