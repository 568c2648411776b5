"""Count what is not plain English in docstrings, comments, texts, recipes and Markdown; part of `make lint`.

    python .ci/language.py             # exit status 1 where a count is above that in .ci/language.json
    python .ci/language.py --list      # every place
    python .ci/language.py --lower     # write lower counts into .ci/language.json; none is ever raised
    python .ci/language.py --commits   # subjects of the newest commits: `area: imperative summary`, 72 characters

Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_suffix(".json")
FOLDERS = ("flows", "tasks", "models", "benchmarks")
WORDS = re.compile(
    r"\b(?:told|tells?|anew|whom|whoever|whosever|nobody|somebody|in place of|hangs? on|beside|(?:is|are) no [a-z]+"
    r"|(?:for|of|by) who|held against|(?:stands?|lies) (?:in|there|on|under|behind|beside|with)|goes? on|goe?s? by"
    r"|falls? short|is said|says? (?:so|which|what|why|that))\b",
    re.IGNORECASE,
)
"""Words of the project's former register, each of which has a plain one: reported, again, the caller, next to..."""
CLAUSE = re.compile(r"(?:What|Which|Who|Whose|Whom|Of)\b")
"""A docstring of a function begins with an imperative verb instead."""
SUBJECT = re.compile(r"[a-z][a-z0-9_/., -]*: [a-z]\S* \S.*")
LONGEST_SUBJECT = 72
COMMITS = 20
"""Commits whose subjects are checked."""
GENERATED = ("docs/methods.md", "docs/papers.md", "docs/commands.md", "docs/league.md", "docs/parts/")
"""Pages that are made from docstrings, which are counted themselves."""

Place = tuple[str, str]
"""Kind of finding, and where it is: FILE:LINE and the words."""


PARTS = ("docstrings", "comments", "texts", "recipes", "Markdown")


def of_python(name: str, source: str) -> Iterator[Place]:
    """Yield the findings in a Python file."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            kind = "words in docstrings" if id(node) in docstrings else "words in texts"
            yield from ((kind, f"{name}:{node.lineno} {hit}") for hit in WORDS.findall(node.value))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            is_property = any("property" in ast.unparse(mark) for mark in node.decorator_list)
            if CLAUSE.match(text) and not is_property:
                yield "docstrings that begin with a clause", f"{name}:{node.lineno} {text.splitlines()[0]}"
    yield from of_comments("words in comments", name, source)


def of_markdown(name: str, text: str) -> Iterator[Place]:
    """Yield the findings in a Markdown page, examples in code blocks left out."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code:
            yield from (("words in Markdown", f"{name}:{number} {hit}") for hit in WORDS.findall(line))


def of_comments(kind: str, name: str, text: str) -> Iterator[Place]:
    """Yield the findings in the comments of a Python file or a recipe."""
    for number, line in enumerate(text.splitlines(), 1):
        if "#" in line:
            yield from ((kind, f"{name}:{number} {hit}") for hit in WORDS.findall(line.split("#", 1)[1]))


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def places() -> list[Place]:
    """Return every finding in the files that git does not ignore."""
    findings: list[Place] = []
    for name in git("ls-files", "--cached", "--others", "--exclude-standard"):
        if not (ROOT / name).is_file():
            continue
        if name.endswith(".py") and name.split("/")[0] in FOLDERS:
            findings += of_python(name, (ROOT / name).read_text(encoding="utf-8"))
        elif name.startswith("recipes/") and name.endswith(".yaml"):
            findings += of_comments("words in recipes", name, (ROOT / name).read_text(encoding="utf-8"))
        elif name.endswith(".md") and not name.startswith(GENERATED):
            findings += of_markdown(name, (ROOT / name).read_text(encoding="utf-8"))
    return findings


def counts(findings: list[Place]) -> dict[str, int]:
    """Count findings by kind."""
    kinds = ("docstrings that begin with a clause", *(f"words in {where}" for where in PARTS))
    return {kind: sum(each == kind for each, _ in findings) for kind in kinds}


def poor_subjects(subjects: list[str]) -> list[str]:
    """Return the subjects of commits that are too long or do not have the form `area: imperative summary`."""
    written = [subject for subject in subjects if not subject.startswith(("Merge ", "Revert "))]
    return [subject for subject in written if len(subject) > LONGEST_SUBJECT or not SUBJECT.fullmatch(subject)]


def main() -> int:
    """Compare the counts with the baseline. Returns 1 where one is above it."""
    parser = argparse.ArgumentParser(prog="python .ci/language.py", description=(__doc__ or "").splitlines()[0])
    flags = {"--list": "print every place", "--lower": "lower the baseline", "--commits": "check commit subjects"}
    for flag, text in flags.items():
        parser.add_argument(flag, action="store_true", help=text)
    options = parser.parse_args()
    if options.commits:
        poor = poor_subjects(git("log", f"-{COMMITS}", "--format=%s"))
        for subject in poor:
            print(
                f"commit subject: {subject!r}: write 'area: imperative summary', {LONGEST_SUBJECT} characters at most"
            )
        return int(bool(poor))
    findings = places()
    if options.list:
        print("\n".join(f"{place}  ({kind})" for kind, place in findings))
    counted, allowed = counts(findings), json.loads(BASELINE.read_text(encoding="utf-8"))
    over = [kind for kind, count in counted.items() if count > allowed[kind]]
    for kind in over:
        print(f"{kind}: {counted[kind]}, at most {allowed[kind]}; `python .ci/language.py --list` prints the places")
    if options.lower:
        lowered = {kind: min(count, allowed[kind]) for kind, count in counted.items()}
        BASELINE.write_text(json.dumps(lowered, indent=1) + "\n", encoding="utf-8")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
