"""Names in the code are nouns: the words in `NO_NOUNS` are not used as names."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from running import ROOT

NO_NOUNS = {"found", "one", "told"}
HELD = ("models", "tasks", "flows", "benchmarks", "tests")
"""Folders that are checked, as git writes their paths."""


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield the names of variables, parameters, functions, classes, attributes and imports, each with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.alias(name=name, asname=other):
                yield node.lineno, other or name


def files_of(held: str) -> list[Path]:
    """Return the Python files of `held` that git tracks or does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", held]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in listed.stdout.splitlines() if line.endswith(".py") and (ROOT / line).is_file()]


def test_nothing_is_named_by_a_word_that_says_nothing() -> None:
    named = [
        f"{file}:{line}: {name}"
        for held in HELD
        for file in files_of(held)
        for line, name in names_in((ROOT / file).read_text())
        if name in NO_NOUNS
    ]
    assert named == [], "call it by its noun: rollout, completion, file, metrics"


def test_every_way_to_give_a_name_is_seen() -> None:
    ways = [
        "one = 1",
        "def one(): ...",
        "def f(one): ...",
        "class one: ...",
        "[one for one in x]",
        "for one, y in x: ...",
        "with x as one: ...",
        "(one := x)",
        "self.one = 1",
        "import x as one",
        "lambda one: 1",
        "try: ...\nexcept E as one: ...",
    ]
    assert [way for way in ways if "one" not in {name for _, name in names_in(way)}] == []
    assert list(names_in('"""one"""\nx = f(one)  # of one')) == [(2, "x")]
