"""The reference of the guide is the program's own, and leaves out nothing that a user may set."""

import re
from types import ModuleType
from typing import Any

import pytest
import typer

from flows.command_line import app
from flows.reference import VARIABLES, as_markdown, documented
from tests.support.guide import ROOT

INTERNAL = {"REWARDFLOW_STARTER"}
"""Set by the program for what it starts."""
OURS = re.compile(r"""["'](REWARDFLOW_[A-Z_]+|DATA_REMOTE|MLFLOW_TRACKING_[A-Z]+|PREFECT_API_URL|VLLM_API_KEY)["']""")


def commands(command: Any, name: str = "rewardflow") -> list[str]:
    """All commands without a command below them."""
    inner = getattr(command, "commands", {})
    return [leaf for word, below in inner.items() for leaf in commands(below, f"{name} {word}")] or [name]


def test_the_page_of_the_guide_is_made_from_the_program() -> None:
    page = as_markdown(typer.main.get_command(app))
    assert (ROOT / "docs/commands.md").read_text() == page, "rewardflow reference > docs/commands.md"


def test_every_command_and_every_option_is_on_the_page() -> None:
    program = typer.main.get_command(app)
    page = as_markdown(program)
    listed = re.findall(r"^## (rewardflow .*)$", page, flags=re.MULTILINE)
    assert listed == commands(program) and len(listed) > 25
    for word in ("`--max-model-len`", "`--set, -s KEY=VALUE`", "`--mlflow-port`", "`--reviewer LOGIN`"):
        assert (word in page) is (word != "`--max-model-len`")


def test_every_environment_variable_that_the_program_reads_is_explained() -> None:
    files = [file for folder in ("flows", "tasks", "models") for file in (ROOT / folder).rglob("*.py")]
    read = {name for file in files if file.name != "reference.py" for name in OURS.findall(file.read_text())}
    assert {"REWARDFLOW_HOME", "REWARDFLOW_NOTIFY_URL"} <= read
    assert read - INTERNAL <= set(VARIABLES)


def test_constants_are_listed_with_their_words_and_nothing_else_is(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sayings.py").write_text(
        'A = "a"\n"""First\nof two."""\nB = 2\n"""No text."""\nC = "c"\nD = "d"\n"""Last."""\n'
    )
    module: ModuleType = __import__("sayings")
    assert list(documented(module)) == [("a", "First of two."), ("d", "Last.")]
