"""Rewards of a query: equal rows, names, n-grams, queries that must not run, and malformed texts."""

from collections import Counter, defaultdict
from typing import cast

import pytest
import torch

from models.answers.sql import written_query
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.code.sql import Sql
from models.sandbox.settings import SandboxSettings
from models.task_sets.drawing import make_rows
from models.task_sets.queries import QueriesSettings
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
DATABASE = """
CREATE TABLE dogs (name TEXT, age INTEGER, weight REAL);
INSERT INTO dogs VALUES ('rex', 3, 10.5), ('ada', 5, 7.0), ('bob', 3, NULL);
CREATE TABLE cats (name TEXT, owner TEXT);
INSERT INTO cats VALUES ('tom', 'ann'), ('kit', 'ann');
"""
SANDBOX = SandboxSettings(seconds=20, workers=2)


def problem(answer: str, database: str = DATABASE) -> Problem:
    return Problem("p", "?", answer, tests=database)


def values(asks: str, answer: str, *texts: str, database: str = DATABASE, finished: bool = True) -> list[float]:
    sql = Sql(asks=asks, sandbox=SANDBOX)  # type: ignore[arg-type]
    return sql(RESOURCES, [rollout(text, problem(answer, database), finished=finished) for text in texts]).tolist()


def test_equal_rows_are_right_however_the_query_says_it() -> None:
    wanted = "SELECT name FROM dogs WHERE age = 3"
    right = [
        wanted, "select d.name from dogs as d where d.age < 4;", "SELECT name FROM dogs WHERE name IN ('bob', 'rex')",
        "SELECT name FROM dogs WHERE age = 3 ORDER BY name DESC", "VALUES ('rex'), ('bob')",
        "I count.\n```sql\nSELECT name FROM dogs WHERE age = 3\n```\n",
        "SELECT 1 #### SELECT name FROM dogs WHERE age=3",
        "<think>SELECT 1</think><answer>\n```\nSELECT name FROM dogs WHERE age = 3;\n```\n</answer> that is it",
    ]  # fmt: skip
    wrong = [
        "SELECT name FROM dogs", "SELECT name, age FROM dogs WHERE age = 3", "SELECT name FROM dogs WHERE age = '3x'",
        "SELECT name FROM dogs WHERE age = 3 UNION ALL VALUES ('bob')", "SELECT name FROM dogs WHERE",
        "SELECT nom FROM dogs",
        "SELECT name FROM dogs WHERE age = 3; SELECT name FROM dogs WHERE age = 3", "VALUES ('rex'), ('BOB')",
    ]  # fmt: skip
    assert values("execution", wanted, *right, *wrong) == [1.0] * len(right) + [0.0] * len(wrong)
    assert values("syntax", wanted, *right, *wrong) == [1.0] * (len(right) + 4) + [0.0, 0.0, 0.0, 1.0]


def test_the_order_of_rows_counts_where_the_problem_orders_them_and_only_there() -> None:
    by_age = "SELECT name FROM dogs ORDER BY age DESC, name"
    said = [
        "SELECT name FROM dogs ORDER BY age DESC, name",
        "VALUES ('ada'), ('bob'), ('rex')",
        "SELECT name FROM dogs",
    ]
    assert values("execution", by_age, *said) == [1.0, 1.0, 0.0]
    within = "SELECT name FROM (SELECT name FROM dogs ORDER BY age DESC)"
    assert values("execution", within, *said) == [1.0, 1.0, 1.0]


def test_no_rows_are_right_only_of_a_query_that_looks_where_the_problems_looks() -> None:
    wanted = "SELECT name FROM dogs WHERE age > 9"
    right = [wanted, "select d.name from dogs d where d.age >= 10", "SELECT name FROM dogs WHERE age + weight > 99 "]
    wrong = [
        "SELECT 1 WHERE 0", "SELECT name FROM dogs WHERE 0", "SELECT name FROM dogs WHERE name = 'x'",
        "SELECT name, age FROM dogs WHERE age > 9", "SELECT name FROM cats WHERE owner = 'age'",
        "SELECT name FROM dogs WHERE age > 4",
    ]  # fmt: skip
    said = [*right, *wrong, *right, *wrong]
    assert values("execution", wanted, *said) == ([1.0] * len(right) + [0.0] * len(wrong)) * 2
    assert values("execution", f"{wanted} ORDER BY name", *right, wrong[0]) == [1.0] * len(right) + [0.0]


def test_numbers_are_equal_to_ten_digits_and_a_text_or_nothing_is_no_number() -> None:
    said = [
        "SELECT 1.0",
        "SELECT 0.5 + 0.5",
        "SELECT 1 + 1e-13",
        "SELECT 1.001",
        "SELECT '1'",
        "SELECT NULL",
        "SELECT x'31'",
    ]
    assert values("execution", "SELECT 1", *said) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert values("execution", "SELECT NULL", "SELECT NULL", "SELECT 'null'", "SELECT 0") == [1.0, 0.0, 0.0]


def test_names_by_hand() -> None:
    wanted = "SELECT name FROM dogs WHERE age > 3"
    said = {
        wanted: 1.0,
        'select DOGS.Name from dogs where "age" > 1 and `age` < 9': 1.0,
        "SELECT name FROM dogs": 2 / 3,
        "SELECT name FROM dogs WHERE weight > 3": 2 / 4,
        "SELECT name FROM cats WHERE owner = 'age'": 1 / 5,  # a string literal names nothing
        "name dogs FROM age WHERE": 1.0,  # it need not be valid
        "SELECT 1 -- name dogs age": 0.0,
    }
    assert values("schema", wanted, *said) == pytest.approx(list(said.values()))


def test_runs_of_signs_by_hand() -> None:
    said = {"SELECT a": 1.0, "select A": 1.0, "SELECT a FROM": 1 / 2, "SELECT a , a": 1 / 3, "SELECT b": 0.0, "a": 0.0}
    assert values("ngrams", "SELECT a", *said) == pytest.approx(list(said.values()))
    assert values("ngrams", "a <> 'X'", "a != 'X'", "a != 'x'") == pytest.approx([1.0, 1 / 3])
    assert values("ngrams", "a", "A", "b") == [1.0, 0.0]


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH ':memory:' AS other", "PRAGMA query_only = 0", "SELECT * FROM pragma_table_info('dogs')",
        "SELECT load_extension('x')", "INSERT INTO dogs VALUES ('x', 1, 1)", "DELETE FROM dogs", "DROP TABLE dogs",
        "CREATE TEMP TABLE t (a)", "VACUUM INTO 'copy'", "SELECT random()", "SELECT 1; DROP TABLE dogs", "BEGIN",
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT COUNT(*) FROM t",
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t LIMIT 20000) SELECT x FROM t",
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t LIMIT 90) SELECT printf('%060000d', x) FROM t",
        "SELECT hex(zeroblob(900000))", "SELECT " + "(" * 500 + "1" + ")" * 500,
    ],
)  # fmt: skip
def test_what_does_more_than_read_does_not_run_and_its_neighbours_do(query: str) -> None:
    count = "SELECT COUNT(*) FROM dogs"
    assert values("syntax", count, query, count) == [0.0, 1.0]
    assert values("execution", count, query, count) == [0.0, 1.0]


@pytest.mark.rotating(of=6)
def test_a_query_that_takes_too_long_within_a_function_fails_alone() -> None:
    count = "SELECT COUNT(*) FROM dogs"
    endless = "SELECT printf('%.*c', 1000000000, 'x')"
    said = [rollout(text, problem(count)) for text in (endless, count)]
    assert Sql(sandbox=SandboxSettings(seconds=0.5, workers=1))(RESOURCES, said).tolist() == [0.0, 1.0]


def test_what_was_cut_and_what_has_no_database_or_a_broken_one_is_worth_nothing() -> None:
    for asks in ("execution", "syntax", "schema", "ngrams"):
        assert values(asks, "SELECT 1", "SELECT 1", finished=False) == [0.0]
    for database in (" ", "garbage;", "CREATE TABLE a (b); CREATE TABLE a (b);"):
        assert values("execution", "SELECT 1", "SELECT 1", database=database) == [0.0]
        assert values("syntax", "SELECT 1", "SELECT 1", database=database) == [0.0]
    assert values("execution", "SELECT nonsense", "SELECT nonsense", "SELECT 1") == [0.0, 0.0]
    assert values("schema", "SELECT 1", "SELECT name FROM dogs") == [0.0]
    assert values("execution", "SELECT 1") == []


def test_a_block_is_found_in_time_linear_in_a_text_of_white_space() -> None:
    for mark in ("```", "``` sql", "```SQLite \t "):
        assert written_query(f"{mark}\nselect 1;\n```") == "select 1"
    endless = "```" + " " * 1_000_000 + "x"  # quadratic time would take more than an hour
    assert written_query(endless) == endless


def test_no_text_whatever_raises() -> None:
    for asks in ("execution", "syntax", "schema", "ngrams"):
        sql = Sql(asks=asks, sandbox=SANDBOX)  # type: ignore[arg-type]
        worth = sql(RESOURCES, malformed(problem("SELECT name FROM dogs")))
        assert bool(((worth >= 0) & (worth < 1)).all()), asks


def test_equal_rows_decide_in_evaluations_and_no_other_part_does() -> None:
    wanted = problem("SELECT COUNT(*) FROM dogs")
    attempts = [
        Attempt(wanted, "SELECT 3", True), Attempt(wanted, "SELECT 3", False), Attempt(wanted, "SELECT", True),
        Attempt(problem("SELECT 4"), "SELECT 3", True),
    ]  # fmt: skip
    assert Sql(sandbox=SANDBOX).right(attempts) == [True, False, False, False]
    assert [Sql(asks=asks).verifies for asks in ("execution", "syntax", "schema", "ngrams")] == [
        True,
        False,
        False,
        False,
    ]  # type: ignore[arg-type]


def test_sound_demonstrations_are_right_and_each_flaw_costs_what_it_breaks() -> None:
    settings = QueriesSettings(
        problems={"train": 60, "validation": 5, "gate": 5}, demonstrations={"train": 240}, players=60, clubs=12,
        broken=0.25, mislinked=0.3, reversed=0.5,
    )  # fmt: skip
    rows = make_rows(settings)
    problems = {
        str(row["prompt"]): Problem("p", str(row["prompt"]), str(row["answer"]), tests=str(row["tests"]))
        for row in rows["problems"]["train"]
    }
    shown = rows["demonstrations"]["train"]
    said = [rollout(str(row["completion"]), problems[str(row["prompt"])]) for row in shown]
    worth: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    flaws = [str(row["flaw"]) for row in shown]
    for asks in ("execution", "syntax", "schema", "ngrams"):
        given = Sql(asks=asks, sandbox=SANDBOX)(RESOURCES, said)  # type: ignore[arg-type]
        for flaw in set(flaws):
            worth[flaw][asks] = given[torch.tensor([each == flaw for each in flaws])]
    assert min(Counter(flaws)[flaw] for flaw in ("none", "broken", "mislinked", "reversed")) > 20
    assert all(bool((given == 1).all()) for given in worth["none"].values())
    assert bool((worth["broken"]["syntax"] == 0).all() and (worth["broken"]["schema"] == 1).all())
    assert bool(worth["mislinked"]["syntax"].mean() > 0.9 and (worth["mislinked"]["schema"] < 1).all())
    assert bool((worth["reversed"]["schema"] == 1).all() and (worth["reversed"]["ngrams"] < 1).all())
    assert all(worth[flaw]["execution"].mean() < 0.3 for flaw in ("broken", "mislinked", "reversed"))
