"""Files of a person's own that a recipe names, code or text: read once, known by their content from then on.

What was read is what runs, and its hash what stands in keys and on runs, whatever becomes of the file meanwhile.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from models.errors import UserError, shortened

LONGEST_TEXT = 1 << 20
"""Bytes of a file beyond which it is data and no text that anybody reads on a run's page."""


@dataclass(frozen=True)
class GivenFile:
    """The content of a file."""

    file: Path
    text: str
    sha256: str

    @property
    def digest(self) -> str:
        """What it is known by."""
        return self.sha256


@dataclass(frozen=True)
class SourceCode(GivenFile):
    """The content of a file of Python code."""

    def load(self) -> ModuleType:
        """The module that the code makes; run once a process.

        Raises:
            UserError: running it raises.
        """
        return _loaded(self)


def read_source(file: Path, setting: str) -> SourceCode:
    """Read a file of code, which must parse; nothing of it is run.

    Args:
        file: where it lies.
        setting: key of the recipe that names it, for the error's line.

    Raises:
        UserError: there is none, it cannot be read, or it is no Python.
    """
    content = _bytes_of(file, setting)
    try:
        text = content.decode("utf-8")
        ast.parse(text)
    except SyntaxError as error:
        raise UserError(f"{setting}: {file}, line {error.lineno}: no valid Python ({error.msg})") from None
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8, or zeros among them
        raise UserError(f"{setting}: {file}: no valid Python ({error})") from None
    return SourceCode(file, text, hashlib.sha256(content).hexdigest())


def read_text_file(file: Path, setting: str) -> GivenFile:
    """Read a file of text.

    Args:
        file: where it lies.
        setting: key of the recipe that names it, for the error's line.

    Raises:
        UserError: there is none, it cannot be read, or it is no UTF-8.
    """
    content = _bytes_of(file, setting)
    try:
        return GivenFile(file, content.decode("utf-8"), hashlib.sha256(content).hexdigest())
    except UnicodeDecodeError as error:
        raise UserError(f"{setting}: {file}: no UTF-8 (byte {error.start})") from None


def texts_in_command(command: Sequence[str]) -> tuple[GivenFile, ...]:
    """The files of text, up to 1 MiB, that words of a command name: its program, or what that one reads."""
    files = [file for word in command if (file := Path(word)).is_file() and file.stat().st_size <= LONGEST_TEXT]
    contents = [(file, file.read_bytes()) for file in files if os.access(file, os.R_OK)]
    texts = []
    for file, content in contents:
        with suppress(UnicodeDecodeError):  # an interpreter, say
            texts.append(GivenFile(file, content.decode("utf-8"), hashlib.sha256(content).hexdigest()))
    return tuple(texts)


def _bytes_of(file: Path, setting: str) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{setting}: {shortened(file, 200)}: no such file") from None
    except OSError as error:
        raise UserError(f"{setting}: {shortened(file, 200)}: cannot be read ({error.strerror})") from None


@lru_cache(maxsize=16)
def _loaded(source: SourceCode) -> ModuleType:
    name = f"{source.file.stem}_{source.sha256[:12]}"
    module = ModuleType(name)
    module.__file__ = str(source.file)
    sys.modules[name] = module  # dataclasses and the like look their module up
    try:
        exec(compile(source.text, str(source.file), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"{source.file}: running it raises {type(error).__name__}: {error}") from None
    return module
