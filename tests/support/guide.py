"""The commands in the pages of the guide, as a reader types them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("data/*.md"), *ROOT.glob("mlflow/*.md")])
PROGRAMS = ("rewardflow", "make", "python", "mlflow", "prefect", "dvc", "git")
"""The programs whose commands are extracted; tests check these commands against the programs themselves."""

_START = re.compile(rf"(?:\$ )?(?:\w+=\S* +)*(?:\.venv/bin/)?({'|'.join(PROGRAMS)}) ")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Line:
    """One command in a page."""

    page: Path
    number: int
    """The line number of the command's first line."""
    text: str
    """The command without the prompt. Lines that end with a backslash are joined with the next line."""
    program: str
    in_text: bool = False
    """Whether the command is inside a sentence or a table, where required arguments may be omitted."""

    @property
    def words(self) -> list[str]:
        """The words after the program, up to a pipe, a redirection or another command."""
        words = shlex.split(re.sub(r"\$\([^)]*\)", "1", self.text), comments=True)
        start = next(place for place, word in enumerate(words) if word.removeprefix(".venv/bin/") == self.program)
        after = words[start + 1 :]
        ends = [place for place, word in enumerate(after) if re.fullmatch(r"\||;|&&?|[12]?>>?.*", word)]
        return after[: ends[0]] if ends else after

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}: {self.text}"


def lines(page: Path, section: str = "") -> Iterator[Line]:
    """Yield the commands in the code blocks of a page, fenced or indented. `section` limits them to one heading."""
    fenced, heading, kept, began = False, "", "", 0
    for number, text in enumerate(page.read_text().splitlines(), 1):
        if text.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if not fenced and text.startswith("#"):
            heading = text.lstrip("# ")
        if not (fenced or text.startswith("    ")) or (section and heading != section):
            continue
        whole = f"{kept} {text.strip()}".strip()
        began = began if kept else number
        kept = whole.removesuffix("\\").strip() if whole.endswith("\\") else ""
        for command in whole.split(" && ") if not kept else ():
            if start := _START.match(f"{command} "):
                yield Line(page, began, command.removeprefix("$ "), start[1])


def spans(page: Path) -> Iterator[Line]:
    """Yield the commands inside a page's sentences and tables."""
    fenced = False
    for number, text in enumerate(page.read_text().splitlines(), 1):
        fenced ^= text.lstrip().startswith("```")
        if not fenced and not text.startswith("    "):
            for span in _SPAN.findall(text):
                if start := _START.match(f"{span} "):
                    yield Line(page, number, span, start[1], in_text=True)


def parse(command: Any, words: list[str]) -> str:
    """Parse the words with click, without running anything. Return the name of the subcommand, "" if there is none."""
    if hasattr(command, "resolve_command"):  # a group: typer has its own copy of click, so isinstance does not work
        name, inner, rest = command.resolve_command(command.context_class(command), words)
        assert inner is not None, name
        return f"{name} {parse(inner, rest)}".strip()
    command.make_context(command.name, list(words))
    return ""
