"""Every command in the guide is valid: its options, recipes, overrides, make targets and files exist."""

import argparse
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
import typer

from flows.command_line import app
from models.base.errors import UserError
from models.base.package_files import TEMPLATE
from models.recipes.load import load_recipe
from models.recipes.strategy import read_strategy
from models.recipes.sweep import read_sweep
from tests.support.guide import PAGES, ROOT, Line, lines, parse, spans

TARGETS = dict(
    re.findall(r"^([a-z-]+):(?!=)[^\n]*\n((?:\t[^\n]*\n)*)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
)
"""Shell commands of each target of the Makefile."""
VARIABLES = set(re.findall(r"^([A-Z]+) \??:?=", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
OF_RECIPES = {"run": 1, "plan": 1, "compare": 99}
"""Commands whose first arguments are recipes, with the largest number of recipes."""
PLACEHOLDERS = re.compile(r"RECIPE|STRATEGY|NAME|PATH|\.\.\.|[A-Z]+=?[A-Z]*$")


class Wrong(Exception):
    """Raised when a program does not accept a command; the message gives the reason."""


@pytest.fixture(autouse=True)
def at_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def check_rewardflow(words: list[str], in_text: bool = False) -> None:
    """Check words against the command line, with the recipes and overrides in them."""
    # Square brackets mark optional words. A placeholder in capitals is replaced by a number.
    words = [
        word if word.count("[") == word.count("]") and "=" in word else word.strip("[]")
        for word in words
        if word != "[OPTIONS]"
    ]
    typed = [re.sub(r"^[A-Z]+(\.\.\.)?$", "1", word) for word in words]
    if "--help" in words or (in_text and not words):
        return
    try:
        command = parse(typer.main.get_command(app), typed)
    except Exception as error:
        if choice := re.search(r"'1' is not one of '([^']+)'", str(error)):  # a placeholder of an option with choices
            place = next(place for place, word in enumerate(typed) if word == "1" and typed[place - 1].startswith("--"))
            return check_rewardflow([*words[:place], choice[1], *words[place + 1 :]], in_text)
        if in_text and type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError"):
            return
        raise Wrong(f"{type(error).__name__}: {error}") from error
    check_recipes(command, words[len(command.split()) :])


def check_recipes(command: str, arguments: list[str]) -> None:
    """Load the recipes that a command names, with its overrides. Placeholders are skipped."""
    options = [place for place, word in enumerate(arguments) if word.startswith("-")]
    first = arguments[: options[0] if options else None][: OF_RECIPES.get(command, 0)]
    named = first + [arguments[place + 1] for place in options if arguments[place] in ("--recipe", "-r")]
    overrides = [arguments[place + 1] for place in options if arguments[place] in ("--set", "-s")]
    for place in options:
        if arguments[place] == "--strategy" and not PLACEHOLDERS.match(arguments[place + 1]):
            overrides = read_strategy(arguments[place + 1], overrides)[1]
    if "--sweep" in arguments:
        overrides = read_sweep(overrides)[1]
    if command == "data add":
        overrides.append(f"data.path={arguments[0]}")
    for recipe in named:
        if not PLACEHOLDERS.match(recipe) and not (TEMPLATE / f"recipes/{recipe}.yaml").is_file():
            load_recipe(recipe, [it for it in overrides if not PLACEHOLDERS.match(it)])


def check_make(words: list[str]) -> None:
    """Check words against the Makefile, and OPTIONS against the program that the target calls."""
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    if unknown := set(settings) - VARIABLES:
        raise Wrong(f"make: no variable {', '.join(unknown)}")
    for target in [word for word in words if "=" not in word]:
        if target not in TARGETS:
            raise Wrong(f"make: no target {target}")
        behind = re.search(
            r"\$\(BIN\)/(rewardflow|python) ([^\n$]*) \$\(OPTIONS\)", TARGETS[target].replace("$(RECIPE)", "")
        )
        options = shlex.split(settings.get("OPTIONS", ""))
        if options and behind is None:
            raise Wrong(f"make {target}: takes no OPTIONS")
        if options and behind is not None:
            check = {"rewardflow": check_rewardflow, "python": check_python}[behind[1]]
            check([*behind[2].split(), *options])


class Parsed(Exception):
    """Raised when a program of this repository has parsed its arguments."""


def check_python(words: list[str]) -> None:
    """Check that the benchmark module, the test files or the example of a `python` command exist."""
    if words and words[0].startswith("examples/") and (ROOT / words[0]).is_file():
        return
    if words[:1] != ["-m"] or len(words) < 2:
        raise Wrong("python: something else than -m")
    if words[1].startswith("benchmarks") and find_spec(words[1]) is None:
        raise Wrong(f"python: no module {words[1]}")
    if missing := [word for word in words[2:] if word.startswith("tests") and not (ROOT / word).exists()]:
        raise Wrong(f"pytest: no file {missing}")


def check_arguments(words: list[str]) -> None:
    """Run `python -m benchmarks...` until it has parsed its arguments."""
    module, arguments = words[1], words[2:]
    read = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        read(parser, arguments)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        try:
            runpy.run_module(module, run_name="__main__")
        except Parsed:
            return
        except SystemExit as error:
            raise Wrong(f"{module}: {arguments} is not understood") from error
    raise AssertionError(f"{module} reads no arguments")


def of_benchmarks() -> Iterator[tuple[Line, list[str]]]:
    """Yield the lines that start benchmarks, with the words after `python`."""
    for page in PAGES:
        for line in [*lines(page), *spans(page)]:
            words = line.words
            if line.program == "python" and words[1:2] and words[1].startswith("benchmarks"):
                yield line, words
            if line.program == "make" and words[:1] in (["bench"], ["league"]):
                options = [word.removeprefix("OPTIONS=") for word in words[1:]]
                yield (
                    line,
                    [
                        "-m",
                        {"bench": "benchmarks", "league": "benchmarks.league"}[words[0]],
                        *shlex.split(*options or [""]),
                    ],
                )


@pytest.mark.thorough
def test_every_benchmark_of_the_guide_takes_its_arguments() -> None:
    """This test is separate, because parsing the arguments of a benchmark imports torch."""
    asked = list(of_benchmarks())
    assert len(asked) > 10
    for line, words in asked:
        try:
            check_arguments(words)
        except Wrong as error:
            pytest.fail(f"{line}\n    {error}")
    with pytest.raises(Wrong):
        check_arguments(["-m", "benchmarks.league", "--serch"])


def check_git(words: list[str]) -> None:
    """Check that the first word is a command of git."""
    if words[:1] == ["-C"]:
        words = words[2:]
    if words[:1] and words[0] not in git_commands():
        raise Wrong(f"git: no command {words[0]}")


@cache
def git_commands() -> set[str]:
    listed = subprocess.run(["git", "--list-cmds=main"], capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def check_dvc(words: list[str]) -> None:
    """Check words with DVC's own parser."""
    from dvc.cli import DvcParserError
    from dvc.cli.parser import get_main_parser

    if words:
        try:
            get_main_parser().parse_args(words)
        except (DvcParserError, SystemExit) as error:
            raise Wrong(f"dvc: {words} is not understood") from error


def check(line: Line) -> None:
    """Check a line of the guide against its program."""
    words = line.words
    if line.program == "rewardflow":
        check_rewardflow(words, line.in_text)
    elif line.program != "python" or words:  # The word `python` alone is the language.
        checks = {"make": check_make, "python": check_python, "git": check_git, "dvc": check_dvc}
        checks.get(line.program, lambda _: None)(words)


def wrong(commands: Iterable[Line]) -> list[str]:
    """Return the errors of the lines that their programs do not accept, with file and line."""
    said = []
    for line in commands:
        try:
            check(line)
        except (Wrong, UserError) as error:
            said.append(f"{line}\n    {error}")
    return said


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_one_that_its_program_takes(page: Path) -> None:
    assert "\n".join(wrong([*lines(page), *spans(page)])) == ""


def test_the_readme_begins_with_the_commands_that_run_the_project_and_test_it() -> None:
    words = [line.words for line in lines(ROOT / "README.md") if line.program == "make"]
    assert words[:3] == [["run"], ["demo"], ["test"]]


@pytest.mark.parametrize(
    "slip",
    [
        "rewardflow modles",
        "rewardflow runs --limt 5",
        "rewardflow data ad FILE",
        "rewardflow run recipes/arithmetik.yaml",
        "rewardflow run arithmetic --set schedule.rouns=3",
        "rewardflow restore",
        "make tset",
        "make ui PORT=5001",
        'make ui OPTIONS="--mlflow-prt 5001"',
        'make lint OPTIONS="-v"',
        "python -m pytest tests/models/parts/objective/test_cisppo.py",
        "git chekout COMMIT",
        "dvc remote ad x",
    ],
)
def test_a_slip_is_seen_with_file_and_line(slip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.guide.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\nText.\n\n    {slip}   # a comment\n")
    (said,) = wrong(lines(page))
    assert said.startswith(f"page.md:5: {slip}")
