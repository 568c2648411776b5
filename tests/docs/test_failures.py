"""The page of failures names fifteen of them, each with tests that exist in the file that it links to."""

import ast
import re

import pytest

from tests.support.guide import ROOT

PAGE = ROOT / "docs" / "failures.md"
SECTIONS = re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^- \[([^]]+)\]\(([^)]+)\):((?:\s+`test_\w+`,?)+)$", flags=re.MULTILINE)


def names_of_tests(file: str) -> set[str]:
    """Return the names of the test functions of a file of the repository."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_page_has_fifteen_failures_in_order() -> None:
    assert [int(number) for number, _ in SECTIONS] == list(range(1, 16))


@pytest.mark.parametrize(("number", "text"), SECTIONS, ids=[number for number, _ in SECTIONS])
def test_a_failure_has_reports_a_description_and_tests_that_exist(number: str, text: str) -> None:
    assert re.search(r"^Reports?: \[[\w-]+#\d+\]\(https://github\.com/", text, flags=re.MULTILINE)
    assert re.search(r"^Here: ", text, flags=re.MULTILINE)
    named = NAMED.findall(text)
    assert named and text.count("`test_") == sum(names.count("`test_") for _, _, names in named)
    for shown, link, names in named:
        assert link == f"../{shown}"
        assert set(re.findall(r"`(test_\w+)`", names)) <= names_of_tests(shown), (number, shown)


def test_the_number_of_a_report_is_that_of_its_address() -> None:
    links = re.findall(
        r"\[([\w-]+)#(\d+)\]\((https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/(\d+))\)", PAGE.read_text()
    )
    assert len(links) > 40
    assert [address for _, number, address, of_address in links if number != of_address] == []
