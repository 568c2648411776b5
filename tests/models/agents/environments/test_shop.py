"""A shop: results of a search, rewards of a purchase, and commands that have no effect."""

import json
import math
import sqlite3

import pytest

from models.agents.environments.shop import Shop, ShopAnswer
from models.agents.play.shelves import Item, Shelves
from models.method.problem import Problem

ITEMS = [("hat", "red", 25), ("hat", "blue", 9), ("mug", "red", 7), ("hat", "red", 12), ("pen", "gray", 5)]
WANTED = {"items": ITEMS, "kind": "hat", "colour": "red", "under": 20}


def shopped(*turns: str, environment: Shop | None = None) -> tuple[list[str], float, bool]:
    opened = (environment or Shop()).open(Problem("p", "shop 1: red hat < 20", json.dumps(WANTED)))
    opened.reset(0)
    answers = [opened.step(turn) for turn in turns]
    opened.close()
    return [said for said, *_ in answers], sum(reward for _, reward, *_ in answers), bool(answers[-1][4].get("solved"))


def test_an_errand_is_met_by_the_item_that_meets_every_demand() -> None:
    said, earned, solved = shopped("search hat", "look 2", "look 4", "add 4", "buy")
    assert said == ["1 $25, 2 $9, 4 $12", "blue hat $9", "red hat $12", "cart 4", ""]
    assert (earned, solved) == (1.0, True)


@pytest.mark.parametrize(
    "turns", [("buy",), ("add 2", "buy"), ("add 1", "buy"), ("add 4", "add 3", "buy"), ("add 4", "drop 4", "buy")]
)
def test_any_other_cart_is_worth_nothing(turns: tuple[str, ...]) -> None:
    assert shopped(*turns)[1:] == (0.0, False)


def test_an_item_that_was_taken_out_does_not_count() -> None:
    assert shopped("add 2", "add 4", "add 4", "drop 2", "buy")[1:] == (1.0, True)


@pytest.mark.parametrize(
    "turn", ["search", "look", "look x", "look 99", "add 0", "look 1 2", "pay", "look ²", "look -1"]
)
def test_what_is_no_command_is_answered_by_an_error(turn: str) -> None:
    assert shopped(turn)[0][0].startswith("error:")


ATTACKS = ["hat' OR 1=1 --", "%", "hat') UNION SELECT 1, 2 --", "*", "hat; DELETE FROM item"]


@pytest.mark.parametrize("words", ATTACKS)
def test_words_never_become_sql(words: str) -> None:
    said = shopped(f"search {words}", "search pen")[0]
    assert said[0] in ("nothing", "1 $25, 2 $9, 4 $12") and said[1] == "5 $5"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM item", "UPDATE item SET price = 0", "INSERT INTO item VALUES (9, 'hat', 'red', 1)",
        "DROP TABLE item", "CREATE TABLE other (x)", "ATTACH DATABASE '/tmp/x.db' AS other",
        "PRAGMA writable_schema = 1", "UPDATE cart SET number = 1",
    ],
)  # fmt: skip
def test_the_connection_itself_lets_nothing_through_but_reading_and_the_cart(statement: str) -> None:
    shelves = Shelves([Item(*item) for item in ITEMS])
    shelves.add(2)
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        shelves._base.execute(statement)
    assert [shelves.look(number) for number in range(1, 6)] == [Item(*item) for item in ITEMS]
    assert shelves.cart == [2]


def bits(holding: int) -> float:
    return -math.log2(holding / len(ITEMS))


@pytest.mark.parametrize(
    "number, share, by_rank",
    [
        (4, 1.0, 1.0),
        (1, 2 / 3, (bits(3) + bits(3)) / (bits(3) + bits(3) + bits(4))),  # too expensive
        (2, 2 / 3, bits(3) / (bits(3) + bits(3) + bits(4))),  # meets the price, but not the colour, which ranks higher
        (3, 2 / 3, 0.0),  # of another kind
        (5, 1 / 3, 0.0),
    ],
)
def test_partial_credit_as_enumerated_over_the_catalogue(number: int, share: float, by_rank: float) -> None:
    assert shopped(f"add {number}", "buy", environment=Shop(pays="share"))[1] == pytest.approx(share)
    assert shopped(f"add {number}", "buy", environment=Shop(pays="by_rank"))[1] == pytest.approx(by_rank)
    assert shopped(f"add {number}", "buy", environment=Shop(pays="all"))[1] == float(number == 4)


def test_a_demand_that_every_item_meets_is_worth_nothing_by_rank() -> None:
    same = ShopAnswer(items=(("hat", "red", 5), ("hat", "blue", 6)), kind="hat", colour="red")
    assert same.met(Item("hat", "blue", 6)) == [(True, 0.0), (False, 1.0)]
