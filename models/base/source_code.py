"""Files of the user's own, code or text, that a recipe names; they are read once and identified by their content.

The content that was read is the content that runs, and its hash is stored in keys and on runs, even if the file changes
later.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from models.base.errors import UserError, shortened
from models.base.user_code.contain import UserCodeError, file_of, leaving, restored

NOT_ON_IMPORT = "put what a command would do under `if __name__ == '__main__':`"
UNKNOWN_ARGUMENT = "--imported-by-rewardflow"
LONGEST_TEXT = 1 << 20
"""Size, bytes, above which a file counts as data and not as a text to show on a run's page."""


@dataclass(frozen=True)
class GivenFile:
    """A file of the user's own, with the content that was read."""

    file: Path
    text: str
    sha256: str

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal digits."""
        return self.sha256

    def lines(self, setting: str) -> Iterator[tuple[str, str]]:
        """Yield each line that is not blank, after its place for messages: `SETTING: FILE, line NUMBER`."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.strip():
                yield f"{setting}: {self.file}, line {number}", line


@dataclass(frozen=True)
class SourceCode(GivenFile):
    """A Python file of the user's own, with the code that was read."""

    def load(self) -> ModuleType:
        """Import the code as a module and return it; it runs once per process.

        Raises:
            UserError: running it raises.
        """
        return _loaded(self)


def code_file(part: object) -> str:
    """Return the file of a part's code: the user's own Python file if the part reads one, else that of its class."""
    given = getattr(part, "given", ())
    return next((str(source.file) for source in given if isinstance(source, SourceCode)), file_of(part))


def read_source(file: Path, setting: str) -> SourceCode:
    """Read a Python file and check its syntax, without running it.

    Args:
        file: the file to read.
        setting: key of the recipe that names it, for the error message.

    Raises:
        UserError: the file does not exist, it cannot be read, or it is not valid Python.
    """
    content = _bytes_of(file, setting)
    try:
        text = content.decode("utf-8")
        ast.parse(text)
    except SyntaxError as error:
        raise UserError(f"{setting}: {file}, line {error.lineno}: no valid Python ({error.msg})") from None
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8, or zeros among them
        raise UserError(f"{setting}: {file}: no valid Python ({error})") from None
    return SourceCode(file, text, hashlib.sha256(content).hexdigest())


def read_text_file(file: Path, setting: str) -> GivenFile:
    """Read a text file in UTF-8.

    Args:
        file: the file to read.
        setting: key of the recipe that names it, for the error message.

    Raises:
        UserError: the file does not exist, it cannot be read, or it is not valid UTF-8.
    """
    content = _bytes_of(file, setting)
    try:
        return GivenFile(file, content.decode("utf-8"), hashlib.sha256(content).hexdigest())
    except UnicodeDecodeError as error:
        raise UserError(f"{setting}: {file}: no UTF-8 (byte {error.start})") from None


def texts_in_command(command: Sequence[str]) -> tuple[GivenFile, ...]:
    """Read the text files, up to 1 MiB each, among the words of a command: its program, or files that it reads."""
    files = [file for word in command if (file := Path(word)).is_file() and file.stat().st_size <= LONGEST_TEXT]
    contents = [(file, file.read_bytes()) for file in files if os.access(file, os.R_OK)]
    texts = []
    for file, content in contents:
        with suppress(UnicodeDecodeError):  # such as an interpreter
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
    file = str(source.file)
    name = f"{source.file.stem}_{source.sha256[:12]}"
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses and the like look their module up
    loaded = False
    try:
        with restored(file), _no_arguments(file) as printed, leaving(file, "importing it"):
            exec(compile(source.text, file, "exec"), module.__dict__)
        loaded = True
    except UserCodeError as error:
        last = printed.getvalue().strip().splitlines()[-1:]
        raise UserError(f"{error}{f' ({shortened(last[0], 200)})' if last else ''}; {NOT_ON_IMPORT}") from None
    except Exception as error:
        raise UserError(f"{source.file}: running it raises {type(error).__name__}: {error}") from None
    finally:
        if not loaded:
            del sys.modules[name]
    return module


@contextmanager
def _no_arguments(file: str) -> Iterator[io.StringIO]:
    """Hide the command line from a file that is imported, and hold back its standard error until it is loaded.

    The arguments that it finds instead include one that no parser knows: a file that parses arguments when it is
    imported is refused, whatever the arguments of the run.
    """
    words, stream, printed = sys.argv, sys.stderr, io.StringIO()
    sys.argv, sys.stderr = [file, UNKNOWN_ARGUMENT], printed
    try:
        yield printed
        stream.write(printed.getvalue())
    finally:
        sys.argv, sys.stderr = words, stream
