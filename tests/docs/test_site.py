"""The documentation site: its navigation has every page, it is built strictly, and none of its links is dead."""

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from models.recipes.schema import recipe_type
from tests.support.guide import ROOT

BUILDS = [name for name in ("mkdocs", "material", "mkdocstrings", "mike") if find_spec(name) is None]
needs_mkdocs = pytest.mark.skipif(bool(BUILDS), reason=f"{', '.join(BUILDS)}: not installed (the extra `docs`)")
KINDS = ["Tutorials", "How-to guides", "Reference", "Explanation"]
SKIPPED = ("mailto:", "javascript:")


class Settings(yaml.SafeLoader):
    """Reader of mkdocs.yml, whose tags name variables and functions; these become None."""


Settings.add_multi_constructor("!", lambda *_: None)
Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


class Page(HTMLParser):
    """The links, anchors and loaded files of a built page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "__skip"}
        self.loaded: list[str] = []
        self.navigation: list[str] = []
        self._depth = 0
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "nav":
            self._depth += 1
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
            if self._depth:
                self.navigation.append(values["href"])
        if "src" in values or (tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload"}):
            self.loaded.append(values.get("src") or values["href"])

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "nav"


class Site:
    """A built site, and the links between its pages."""

    def __init__(self, folder: Path, output: str) -> None:
        self.folder = folder
        self.output = output

    @cached_property
    def pages(self) -> dict[Path, Page]:
        """All pages by file, except the page for addresses that do not exist."""
        return {file: Page(file) for file in self.folder.rglob("*.html") if file.name != "404.html"}

    def target(self, file: Path, link: str) -> tuple[Path, str] | None:
        """Return the file and the anchor that a link leads to, or None if it leaves the site."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link.startswith(SKIPPED):
            return None
        path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)

    def dead(self) -> Iterator[str]:
        """Yield the links and loaded files that do not exist, with their page."""
        for file, page in self.pages.items():
            for link in {*page.links, *page.loaded}:
                place = self.target(file, link)
                if place is None:
                    continue
                path, anchor = place
                if not path.is_file() or (path in self.pages and anchor not in self.pages[path].anchors):
                    yield f"{file.relative_to(self.folder)}: {link}"

    def reached(self, links: list[str], file: Path) -> set[tuple[Path, str]]:
        """Return the places that links of a page lead to."""
        return {place for link in links if (place := self.target(file, link)) is not None}


def settings() -> dict[str, Any]:
    """Return mkdocs.yml."""
    loaded: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=Settings)  # noqa: S506
    return loaded


def listed(navigation: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation and of the sections in it."""
    for entry in navigation:
        for value in entry.values() if isinstance(entry, dict) else (entry,):
            if isinstance(value, list):
                yield from listed(value)
            else:
                yield value


def build(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder, as `mkdocs build --strict` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site once, with a script in the role of Mermaid."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "given.js").write_text("var mermaid = {};")
    done = build(folder / "built", MERMAID_JS=str(folder / "given.js"))
    assert done.returncode == 0, done.stderr
    return Site((folder / "built").resolve(), done.stderr)


def test_the_navigation_has_every_page_of_the_guide_once() -> None:
    pages = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    named = [page for page in listed(settings()["nav"]) if not page.startswith("repository/")]
    assert sorted(named) == pages, "the pages of docs/ are those of `nav` in mkdocs.yml"


def test_the_navigation_is_of_four_kinds_and_finds_the_pages_outside_docs() -> None:
    navigation = settings()["nav"]
    assert [next(iter(entry)) for entry in navigation] == ["Home", *KINDS]
    outside = [page.removeprefix("repository/") for page in listed(navigation) if page.startswith("repository/")]
    assert outside
    assert [page for page in outside if not (ROOT / page.removesuffix(".md") / "README.md").is_file()] == []


def test_the_examples_of_the_api_page_are_true() -> None:
    text = (ROOT / "docs/api/README.md").read_text()
    example = doctest.DocTestParser().get_doctest(text, {}, "api", "docs/api/README.md", 0)
    assert len(example.examples) > 5
    assert doctest.DocTestRunner().run(example).failed == 0


def headings(page: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the page and the anchor, formed as on GitHub, of each heading of the second level of a page of docs/."""
    for text in re.findall(rf"^## ({pattern})$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE):
        yield page, re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@needs_mkdocs
@pytest.mark.thorough
def test_the_site_is_built_without_a_warning_and_holds_every_page(site: Site) -> None:
    assert "WARNING" not in site.output
    for page in listed(settings()["nav"]):
        place = site.folder / page.removesuffix(".md").removesuffix("README") / "index.html"
        assert place.is_file(), page


@needs_mkdocs
@pytest.mark.thorough
def test_no_link_of_the_site_is_dead(site: Site) -> None:
    assert len(site.pages) > 100 and sum(len(page.links) for page in site.pages.values()) > 10_000
    assert list(site.dead()) == []


@needs_mkdocs
@pytest.mark.thorough
def test_no_page_loads_anything_from_another_host(site: Site) -> None:
    loaded = {link for page in site.pages.values() for link in page.loaded}
    assert [link for link in loaded if urlsplit(link).netloc] == []
    assert (site.folder / "assets/mermaid.min.js").read_text() == "var mermaid = {};"
    diagrams = site.pages[site.folder / "how_it_works/index.html"]
    assert "../assets/mermaid.min.js" in diagrams.loaded
    assert (site.folder / "how_it_works/index.html").read_text().count('<pre class="mermaid">') == 3


@needs_mkdocs
@pytest.mark.thorough
def test_every_command_recipe_key_and_part_is_two_clicks_from_the_first_page(site: Site) -> None:
    home = site.folder / "index.html"
    first = {path for path, _ in site.reached(site.pages[home].navigation, home) if path in site.pages}
    second = {place for path in first for place in site.reached(site.pages[path].links, path)}
    named = set(headings("commands.md", r"rewardflow .+"))
    assert len(named) > 25
    for file in (ROOT / "docs/parts").glob("[a-z]*.md"):
        named |= set(headings(f"parts/{file.name}", r"\w+.*"))
    wanted = {(site.folder / page.removesuffix(".md") / "index.html", anchor) for page, anchor in named}
    assert {path for path, _ in wanted} <= first
    assert wanted - second == set()
    recipes = site.folder / "recipes/index.html"
    assert recipes in first
    assert set(recipe_type().model_fields) <= set(re.findall(r"<code>(\w+)</code>", recipes.read_text()))


@pytest.mark.rotating(of=6)
@needs_mkdocs
def test_a_script_that_does_not_exist_is_one_clear_line(tmp_path: Path) -> None:
    done = build(tmp_path / "built", MERMAID_JS=str(tmp_path / "absent.js"))
    assert done.returncode == 1
    assert f"MERMAID_JS: {tmp_path / 'absent.js'} does not exist; name the file mermaid.min.js" in done.stderr
