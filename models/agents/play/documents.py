"""Documents that a tool searches: read from a file or a folder, identified by their content, ranked by BM25.

    places.jsonl     one document per line: {"text": ..., "title": optional}
    a folder         all such files in it, and every paragraph of its .txt and .md files

BM25 is that of bm25s (arXiv 2407.03618), over words in lower case. Documents with equal scores keep their order.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from models.base.errors import UserError
from models.base.source_code import GivenFile, read_text_file
from models.base.strict_json import JsonError, parse_json

_WORD = re.compile(r"\w+")
_KINDS = (".jsonl", ".txt", ".md")


def read_documents(place: Path, setting: str) -> tuple[GivenFile, ...]:
    """Read the files of a set of documents, sorted by path.

    Args:
        place: a file, or a folder whose files of known kinds are read, subfolders included.
        setting: key of the recipe that names it, for the error message.

    Raises:
        UserError: the folder holds none of these files, or a file cannot be read.
    """
    if not place.is_dir():
        return (read_text_file(place, setting),)
    files = sorted(file for file in place.rglob("*") if file.is_file() and file.suffix in _KINDS)
    if not files:
        raise UserError(f"{setting}: {place} holds no documents ({', '.join(_KINDS)})")
    return tuple(read_text_file(file, setting) for file in files)


def known_documents(place: str, sha256: str, setting: str, said: str = "") -> tuple[tuple[GivenFile, ...], str]:
    """Return the files of a part's documents and the hash of their content; both are empty if `place` is empty.

    Args:
        place: a file or a folder; empty: no documents.
        sha256: hash that the recipe states; empty: the content is not checked.
        setting: key of the recipe that names the place, for the error message.
        said: key of the recipe that states the hash, for the error message; empty: `setting`.

    Raises:
        UserError: see `read_documents`, or the content has another hash than `sha256`.
    """
    files = read_documents(Path(place), setting) if place else ()
    content = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest() if files else ""
    if sha256 not in ("", content):
        raise UserError(f"{said or setting}: {place} has other content than sha256 says: {content or 'none'}")
    return files, content


class OfDocuments:
    """A part with the user's own documents, with the settings `documents` and `sha256`."""

    documents: str
    sha256: str

    def _know_documents(self, setting: str, said: str = "") -> tuple[GivenFile, ...]:
        """Read and store the documents and the hash of their content; see `known_documents`."""
        files, content = known_documents(self.documents, self.sha256, setting, said)
        object.__setattr__(self, "sha256", content)
        object.__setattr__(self, "_files", files)
        return files

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The files of the documents, with their content at the time when the recipe was read."""
        files: tuple[GivenFile, ...] = vars(self)["_files"]
        return files


def texts_of(files: Sequence[GivenFile], setting: str) -> list[str]:
    """Return the documents in files, the title before the text, [documents].

    Raises:
        UserError: a file is of an unknown kind, a line is not a document, or the files hold no documents.
    """
    texts = [text for file in files for text in _texts(file, setting)]
    if not texts:
        raise UserError(f"{setting}: {files[0].file} holds no documents")
    return texts


def _texts(given: GivenFile, setting: str) -> list[str]:
    if given.file.suffix in (".txt", ".md"):
        return [" ".join(part.split()) for part in re.split(r"\n\s*\n", given.text) if part.strip()]
    if given.file.suffix != ".jsonl":
        raise UserError(f"{setting}: {given.file}: documents are .jsonl, .txt or .md")
    return [
        _of_row(row, f"{setting}: {given.file}, line {number}")
        for number, row in enumerate(given.text.splitlines(), 1)
        if row.strip()
    ]


def _of_row(row: str, where: str) -> str:
    try:
        parsed = parse_json(row)
    except JsonError as error:
        raise UserError(f"{where}: {error}") from None
    title, text = (parsed.get("title", ""), parsed.get("text")) if isinstance(parsed, dict) else ("", None)
    if not isinstance(title, str) or not isinstance(text, str) or not text.strip():
        raise UserError(f'{where}: a document is {{"text": ..., "title": optional}}, both of them text')
    return f"{title}. {text}" if title.strip() else text


class Index:
    """Documents that can be searched."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Build the index of the words.

        Args:
            texts: texts of the documents, at least one.
        """
        self._texts = texts
        rows = [words_of(text) for text in texts]
        self._known = {word for row in rows for word in row}
        self._by_first: dict[str, list[str]] = {}
        for text, row in zip(texts, rows, strict=True):
            if row:
                self._by_first.setdefault(row[0], []).append(text)
        self._ranks = _ranker().BM25()
        if self._known:
            self._ranks.index(rows, show_progress=False)

    def best(self, query: str, results: int) -> list[str]:
        """Return the documents that hold words of a query, the best first, at most `results`."""
        words = [word for word in words_of(query) if word in self._known]
        if not words:
            return []
        scores = np.asarray(self._ranks.get_scores(words))
        order = np.argsort(-scores, kind="stable")[:results]
        return [self._texts[place] for place in order if scores[place] > 0]

    def like(self, text: str) -> list[str]:
        """Return the documents that begin with the same word as `text`, in their order."""
        first = words_of(text)[:1]
        return self._by_first.get(first[0], []) if first else []


def words_of(text: str) -> list[str]:
    """Return the words of a text in the form that is searched, in lower case, [words]."""
    return _WORD.findall(text.casefold())


@lru_cache(maxsize=8)
def index_of(files: tuple[GivenFile, ...], setting: str) -> Index:
    """Return the index of documents; it is built once for each content in a process.

    Raises:
        UserError: see `texts_of`.
    """
    return Index(texts_of(files, setting))


def as_line(text: str, title: str = "") -> str:
    """Format a document as a line of a JSONL file."""
    return json.dumps({"title": title, "text": text} if title else {"text": text}, ensure_ascii=False)


def _ranker() -> Any:
    """Import the package bm25s without numba, which it does not need here.

    Loading numba would take seconds, and vLLM cannot start in a process that has loaded it.
    """
    absent = "numba" not in sys.modules
    if absent:
        sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("bm25s")
    finally:
        if absent:
            del sys.modules["numba"]
