"""The sources of answers: what a text such as `champion`, `logs/a.jsonl` or `http://127.0.0.1:8000/v1` names.

    a file                          answers or a log (tasks.judging.read_answers)
    a folder with config.json       a model, which answers the problems here
    any other folder                the only log in it
    http://..., https://...         an OpenAI-compatible server; `#NAME` at the end names its model
    NAME/VERSION, NAME@ALIAS, 3     a registered version, which answers here as its recipe asks
    OWNER/NAME                      a model of the hub that is in the local cache

Only a source that is a model loads the learning code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models.base.errors import UserError, shortened
from tasks.judging.answers import AnswerSet, Drawing
from tasks.judging.problems import JudgedProblem
from tasks.judging.read_answers import log_in_folder, read_answers

Kind = Literal["file", "address", "model folder", "version", "hub id"]
ALIASES = ("champion", "candidate", "previous", "anchor")
"""Aliases that a version may be named by alone."""
_VERSION = re.compile(r"[1-9][0-9]{0,5}|(?:models:/)?[^/@]+(?:/[1-9][0-9]*|@[^/@]+)")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?:@[0-9a-f]{40})?")


@dataclass(frozen=True)
class Source:
    """A source of answers that was recognised and not read yet."""

    given: str
    """The text that names it."""
    kind: Kind
    path: Path = Path()
    """File or folder, if it is one."""

    @property
    def draws(self) -> bool:
        """Whether it is a model, whose answers must be generated."""
        return self.kind != "file"

    @property
    def draws_here(self) -> bool:
        """Whether it is a model that answers in this process."""
        return self.draws and self.kind != "address"


def source_of(given: str, option: str) -> Source:
    """Recognise a source.

    Args:
        given: the text that names it.
        option: the option that it was given by, for messages.

    Raises:
        UserError: it is none.
    """
    if re.match(r"https?://", given):
        return Source(given, "address")
    path = Path(given).expanduser()
    try:
        if path.is_file():
            return Source(given, "file", path)
        if path.is_dir():
            if (path / "config.json").is_file():
                return Source(given, "model folder", path)
            return Source(given, "file", log_in_folder(path))
    except OSError as error:
        raise UserError(f"{option}: {shortened(given)}: {error.strerror}") from None
    if given in ALIASES or _VERSION.fullmatch(given):
        return Source(given, "version")
    if _HUB.fullmatch(given) and not given.endswith((".jsonl", ".json", ".parquet", ".csv")):
        return Source(given, "hub id")
    raise UserError(
        f"{option}: {shortened(given)}: no such file or folder, and not a version (NAME/VERSION, NAME@ALIAS), a hub id "
        "(OWNER/NAME) or an address (http://...)"
    )


def answers_of(
    source: Source, problems: Iterable[JudgedProblem], drawing: Drawing, model: Callable[[], str]
) -> AnswerSet:
    """Return the answers of a source.

    Args:
        source: the source.
        problems: the problems that a model answers; not used for a file.
        drawing: settings of a model's answers.
        model: returns the registered model that a number or an alias alone means.

    Raises:
        UserError: the source cannot be read, or does not answer.
    """
    if source.kind == "file":
        return read_answers(source.path, source.given)
    listed = list(problems)
    if source.kind == "address":
        from tasks.judging.drawn import served

        return served(source.given, listed, drawing)
    from tasks.judging import drawn

    folder = {
        "model folder": lambda: drawn.AnsweringModel(source.path),
        "version": lambda: drawn.registered(source.given, model),
        "hub id": lambda: drawn.in_hub_cache(source.given),
    }[source.kind]()
    return drawn.drawn(source.given, source.kind, folder, listed, drawing)
