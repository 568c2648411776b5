"""The reward `entailed`: each kind of statement by hand, thousands of statements against SQLite, and broken input."""

from __future__ import annotations

import json
import sqlite3
from itertools import product
from random import Random
from typing import cast

import pytest

from models.answers.tables import FactTable, entailed_statements, statements
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.entailed import Entailed
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
TABLE = FactTable(
    columns=("Team", "city", "points", "goals"),
    rows=(("Red Stars", "Oslo", 3, 10), ("blue", "Rome", 5, 4), ("green", "Bern", 5, 1.5)),
)
PROBLEM = Problem("p", "team , points", json.dumps({"table": TABLE.model_dump(mode="json")}))


@pytest.mark.parametrize(
    ("text", "kind", "entailed"),
    [
        ("Red Stars has 3 points", "lookup", True),
        ("The goals of green are 1.5", "lookup", True),
        ("the Red Stars have 5 points", "lookup", False),
        ("blue has more points than Red Stars", "comparison", True),
        ("blue has more points than green", "comparison", False),
        ("Red Stars has two fewer points than blue", "comparison", True),
        ("Red Stars has 1 fewer points than blue", "comparison", False),
        ("Red Stars has the most goals", "superlative", True),
        ("green has the fewest goals", "superlative", True),
        ("blue has the second highest goals", "superlative", True),
        ("blue has the most points", "superlative", False),  # green has as many
        ("Red Stars has the third most points", "superlative", True),
        ("2 teams have more than 3 points", "count", True),
        ("All teams have at least 3 points", "count", True),
        ("no team has fewer than 3 points", "count", True),
        ("every row has exactly 5 points", "count", False),
        ("two of the teams have at most 4 goals", "count", True),
        ("only Red Stars has less than 5 points", "only", True),
        ("only blue has more than 3 points", "only", False),
        ("the total points are 13", "aggregate", True),
        ("the average of points is 4", None, False),
        ("the average points are 4.33", "aggregate", True),
        ("the average points are 4.34", "aggregate", False),
        ("the average points are 4", "aggregate", False),
        ("the difference of points is 2", "aggregate", True),
        ("Red Stars is in Oslo", None, False),
        ("Red Stars has more city than blue", None, False),
        ("white has the most goals", None, False),
    ],
)
def test_a_statement_is_parsed_and_executed(text: str, kind: str | None, entailed: bool) -> None:
    (statement,) = statements(text + ".", TABLE)
    assert (statement.kind, statement.entailed) == (kind, entailed)


def random_table(chance: Random) -> FactTable:
    names = chance.sample(["red", "blue", "green", "white", "black"], chance.randrange(2, 6))
    rows = tuple((name, chance.randrange(0, 5), chance.randrange(-9, 10)) for name in names)
    return FactTable(columns=("team", "points", "goals"), rows=rows)


@pytest.mark.parametrize("seed", range(20))
def test_comparisons_superlatives_counts_and_totals_are_those_of_a_data_base(seed: int) -> None:
    table = random_table(Random(seed))
    base = sqlite3.connect(":memory:")
    base.execute("create table t (team text, points int, goals int)")
    base.executemany("insert into t values (?, ?, ?)", table.rows)

    def ask(query: str) -> int:
        return int(base.execute(query).fetchone()[0])

    names = [str(row[0]) for row in table.rows]
    for column, (name, other) in product(("points", "goals"), product(names, names)):
        own, others = (f"(select {column} from t where team = '{each}')" for each in (name, other))
        lead = f"select {own} - {others}"
        cases = {
            f"{name} has more {column} than {other}": ask(lead) > 0,
            f"{name} has fewer {column} than {other}": ask(lead) < 0,
            f"{name} has 2 more {column} than {other}": ask(lead) == 2,
            f"{name} has the most {column}": ask(
                f"select count(*) from t where {column} >= (select {column} from t where team = '{name}')"
            )
            == 1,
            f"{name} has the second fewest {column}": (
                ask(f"select count(*) from t where {column} < (select {column} from t where team = '{name}')") == 1
                and ask(f"select count(*) from t where {column} = (select {column} from t where team = '{name}')") == 1
            ),
        }
        for than, bound in product(range(-2, 5), ((">", "more than"), ("<=", "at most"), ("=", "exactly"))):
            count = ask(f"select count(*) from t where {column} {bound[0]} {than}")
            cases |= {f"{n} teams have {bound[1]} {than} {column}": count == n for n in range(4)}
            cases[f"all teams have {bound[1]} {than} {column}"] = count == len(names)
        total = ask(f"select sum({column}) from t")
        cases |= {f"the total {column} are {total + off}": off == 0 for off in (-1, 0, 1)}
        read = statements(". ".join(cases), table)
        assert [each.entailed for each in read] == list(cases.values()), (table, column, name, other)


@pytest.mark.parametrize("seed", range(20))
def test_all_statements_that_are_written_for_a_table_are_entailed_by_it(seed: int) -> None:
    table = random_table(Random(seed))
    written = list(entailed_statements(table))
    read = [statements(text, table)[0] for text in written]
    assert all(each.entailed for each in read), [each for each in read if not each.entailed]
    assert {"count", "aggregate"} <= {each.kind for each in read} and "lookup" not in {each.kind for each in read}


def value(text: str, finished: bool = True, **settings: float) -> float:
    return float(Entailed(**settings)(RESOURCES, [rollout(text, PROBLEM, finished=finished)])[0])  # type: ignore[arg-type]


def test_the_value_is_the_share_of_different_entailed_statements() -> None:
    good, lookup, wrong = "blue has more points than Red Stars", "blue has 5 points", "blue has the most goals"
    assert value(f"{good}. {wrong}.") == 0.5
    assert value(f"#### {good}") == 1.0
    assert value(f"{good}. {good}.") == 0.5  # the repetition adds nothing
    assert value(f"{good}. {lookup}.") == 0.5 and value(f"{good}. {lookup}.", lookup=0.5) == 0.75
    assert value(good, finished=False) == 0.0
    assert Entailed().right([Attempt(PROBLEM, text, True) for text in (good, lookup, f"{good}. {wrong}.")]) == [
        True, False, False,
    ]  # fmt: skip
    stated = Entailed().stated(PROBLEM)
    assert stated is not None and value(stated) == 1.0


def test_a_text_of_any_form_has_a_value_below_one() -> None:
    values = Entailed()(RESOURCES, malformed(PROBLEM))
    assert bool(((values >= 0) & (values < 1)).all())


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"columns": ["team", "points"], "rows": [["red"]]}, "row red has 1 cells for 2 columns"),
        ({"columns": ["team"], "rows": [["red"]]}, "needs two columns"),
        ({"columns": ["team", "points"], "rows": [["red", 1], ["Red", 2]]}, "not different names"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_one_line(table: dict[str, object], error: str) -> None:
    broken = Problem("q", "", json.dumps({"table": table}))
    with pytest.raises(UserError, match=error):
        Entailed().accepts([broken])
    assert Entailed().accepts([PROBLEM, broken]) == [True, False]
