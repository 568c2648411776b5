"""Give the site the files outside docs/ that its pages link to: sources, recipes, tests, the README.

In the repository, a page links to `../models/training/loop.py`. On the site, this link leads to a page that shows the
file as it was when the site was built. So every version of the site links to its own sources, and no link leaves the
site. A link whose text is the name of a page, such as `runs.md`, has the title of that page as its text on the site.
MkDocs calls the functions `on_files` and `on_page_markdown`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "repository"
"""Folder of the site with the files outside docs/."""
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
NAMED = re.compile(r"\[[\w./-]+\.md\]\(([^)#\s]+)")
"""A link whose text is the name of a page."""
NESTED = re.compile(r"^ {2}(?=[-*] )")
"""The indentation of a list in a list: two spaces on GitHub, four in MkDocs."""
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|//|/", re.IGNORECASE)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".lock": "text",
             ".sh": "bash", ".jsonl": "json"}  # fmt: skip
IMAGES = {".png", ".svg", ".jpg"}
HIDDEN = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n\n"
"""Front matter of pages that show a file: the search finds the guide, not the sources."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file that is reached by links from the pages of docs/, each once."""
    waiting = [path for file in files.documentation_pages() for path in outside(f"docs/{file.src_uri}")]
    added: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in added:
            continue
        added.add(path)
        file = ROOT / path
        if file.suffix in IMAGES:
            files.append(File.generated(config, place(path), abs_src_path=str(file)))
            continue
        files.append(File.generated(config, place(path), content=shown(path)))
        if file.suffix == ".md":
            waiting += outside(path)
        elif file.is_dir():
            waiting += [f"{path}/{name}" for name in listed(file)]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its links to files outside docs/ changed to the pages that show them."""
    source = origin(page.file.src_uri)
    if not source.endswith(".md") or not (ROOT / source).is_file():
        return markdown
    return "\n".join(line if is_code else moved(line, source) for line, is_code in lines_of(markdown))


def moved(line: str, source: str) -> str:
    """Return a line of the page `source` with links as they must be on the site."""

    def change(match: re.Match[str]) -> str:
        path = target(source, match[2])
        if path is None or (source.startswith("docs/") and path.startswith("docs/")):
            return match[0]
        start = posixpath.dirname(place(source)) or "."
        return f"{match[1]}{posixpath.relpath(place(path), start)}{match[3]}"

    def name(match: re.Match[str]) -> str:
        path = target(source, match[1])
        return f"[{title(path)}]({match[1]}" if path is not None and path.endswith(".md") else match[0]

    return LINK.sub(change, NAMED.sub(name, NESTED.sub("    ", line)))


@cache
def title(path: str) -> str:
    """Return the first heading of a page of the repository, or its path if it has none."""
    heading = re.search(r"^# (.+)$", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return heading[1] if heading else path


def outside(source: str) -> Iterator[str]:
    """Yield the paths outside docs/ that a page links to, relative to the repository."""
    for line, is_code in lines_of((ROOT / source).read_text(encoding="utf-8")):
        for _, link, _ in () if is_code else LINK.findall(line):
            path = target(source, link)
            if path is not None and not path.startswith("docs/"):
                yield path


def lines_of(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a page, and whether each belongs to a fenced block of code."""
    fence = ""
    for line in markdown.split("\n"):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and not fence:
            fence = mark[1]
            yield line, True
        elif mark and line.strip().startswith(fence):
            fence = ""
            yield line, True
        else:
            yield line, bool(fence)


def target(source: str, link: str) -> str | None:
    """Return the path of the repository that a link of the page `source` leads to, or None if there is none."""
    if ADDRESS.match(link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(link)))
    file = ROOT / path
    if path.startswith("..") or not file.exists():
        return None
    if file.is_dir() and (file / "README.md").is_file():
        return f"{path}/README.md"
    return path


@cache
def place(path: str) -> str:
    """Return the place on the site of a path of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return f"{FOLDER}/about.md"
    if path.endswith("/README.md"):  # the theme would take a README.md for the index of its section
        return f"{FOLDER}/{path.removesuffix('/README.md')}.md"
    file = ROOT / path
    return f"{FOLDER}/{path}" if file.suffix in {".md", *IMAGES} else f"{FOLDER}/{path}.md"


def origin(src_uri: str) -> str:
    """Return the path of the repository that a page of the site was made from, if it is Markdown itself."""
    if not src_uri.startswith(f"{FOLDER}/"):
        return f"docs/{src_uri}"
    path = src_uri.removeprefix(f"{FOLDER}/")
    if path == "about.md":
        return "README.md"
    return path if (ROOT / path).is_file() else f"{path.removesuffix('.md')}/README.md"


def listed(folder: Path) -> list[str]:
    """Return the names of the files and folders in a folder of the repository that are worth showing."""
    kept = [entry for entry in folder.iterdir() if entry.is_dir() or entry.suffix in {".md", *LANGUAGES}]
    return sorted(entry.name for entry in kept if not entry.name.startswith((".", "__")))


def shown(path: str) -> str:
    """Return the page that shows a file or the list of a folder."""
    file = ROOT / path
    if file.is_dir():
        start = posixpath.dirname(place(path))
        names = [f"- [{name}]({posixpath.relpath(place(f'{path}/{name}'), start)})" for name in listed(file)]
        return f"{HIDDEN}# {path}/\n\n" + "\n".join(names) + "\n"
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{HIDDEN}# {path}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"
