"""The command `rewardflow methods`: recipes, the register of papers, the taxonomies of surveys."""

import pytest

from flows.cli.methods import methods
from models.base.errors import UserError
from models.recipes import papers, taxonomies


@pytest.mark.rotating(of=6)
def test_the_register_of_papers_is_printed_whole_open_and_as_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    register = papers.registered_papers()
    methods(papers=True)
    assert capsys.readouterr().out == papers.as_text(register) + "\n"
    methods(papers=True, only_open=True)
    assert capsys.readouterr().out == papers.as_text(register, only_open=True) + "\n"
    methods(papers=True, markdown=True)
    assert capsys.readouterr().out == papers.as_markdown(register)


def test_the_taxonomies_are_printed_and_as_their_page(capsys: pytest.CaptureFixture[str]) -> None:
    methods(taxonomies=True)
    assert capsys.readouterr().out == taxonomies.as_text(taxonomies.registered_taxonomies()) + "\n"
    methods(taxonomies=True, markdown=True)
    assert capsys.readouterr().out.startswith("# Taxonomies of surveys\n")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"papers": True, "taxonomies": True}, "--papers, --taxonomies and --family exclude each other"),
        ({"papers": True, "family": "agents"}, "--papers, --taxonomies and --family exclude each other"),
        ({"only_open": True}, "--open restricts the register of papers; add --papers"),
        ({"taxonomies": True, "only_open": True}, "--open restricts the register of papers; add --papers"),
        ({"papers": True, "only_open": True, "markdown": True}, "--open and --markdown exclude each other"),
    ],
)
def test_options_that_exclude_each_other_are_one_line(options: dict[str, bool], finding: str) -> None:
    with pytest.raises(UserError, match=finding):
        methods(**options)  # type: ignore[arg-type]
