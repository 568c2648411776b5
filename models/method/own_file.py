"""A part that reads a file of the user's own: its content is hashed when the recipe is read, and kept with the run."""

from __future__ import annotations

from pathlib import Path

from models.base.errors import UserError
from models.base.source_code import GivenFile, read_text_file


class OwnFile:
    """Mixin of parts with a setting that names a file, and the setting `sha256`."""

    def _know_file(self, file: str, sha256: str, where: str) -> None:
        """Read the file and store its hash in `sha256`; an empty name stands for no file.

        Args:
            file: name of the file.
            sha256: required hash of its content; empty: any.
            where: key of the recipe that names it, for the error message.

        Raises:
            UserError: the file cannot be read, or has another hash.
        """
        files = (read_text_file(Path(file), where),) if file else ()
        content = files[0].sha256 if files else ""
        if sha256 not in ("", content):
            raise UserError(f"{where}: {file} has other content than sha256 says: {content or 'none'}")
        object.__setattr__(self, "sha256", content)
        object.__setattr__(self, "_files", files)

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The file, with its content at the time when the recipe was read; empty without one."""
        files: tuple[GivenFile, ...] = vars(self)["_files"]
        return files
