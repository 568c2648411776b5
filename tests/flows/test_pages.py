"""Links in the guide lead to existing files and headings, and code shown in the guide is identical to the source."""

import re
import tomllib
from pathlib import Path

import pytest

from models.recipes.places import anchors
from tests.support.guide import PAGES, ROOT

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
SHOWN = re.compile(r"^\[([^]]+)\]\([^)]+\):\n\n```(?:python|yaml)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(target.read_text()), f"{page.name}: {path}#{anchor}"


def test_the_files_that_the_guide_to_a_new_method_shows_are_the_files_themselves() -> None:
    guide = (ROOT / "docs" / "new_method.md").read_text()
    shown = SHOWN.findall(guide)
    assert [path.split("/")[0] for path, _ in shown] == ["models", "recipes"]
    (test,) = re.findall(r"```python\n(def test_.*?)```", guide, flags=re.DOTALL)
    assert test in (ROOT / "tests/models/parts/objective/test_cispo.py").read_text()
    for path, text in shown:
        assert text.strip() == (ROOT / path).read_text().strip(), path


def test_the_table_of_packages_is_that_of_the_linter_and_of_their_docstrings() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", (ROOT / "docs" / "code.md").read_text(), flags=re.MULTILINE)
    shown = {name: text for name, text in rows if (ROOT / "models" / name).is_dir()}
    (layers,) = (
        contract["layers"]
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["models"]
    )
    assert set(shown) == {name for layer in layers for name in layer.split(" | ")}
    ranks = {name: rank for rank, layer in enumerate(layers) for name in layer.split(" | ")}
    order = [ranks[name] for name in shown]
    assert order == sorted(order, reverse=True)
    for name, text in shown.items():
        assert f'"""{text}"""' in (ROOT / "models" / name / "__init__.py").read_text(), name
