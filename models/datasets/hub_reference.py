"""Data sets of the Hugging Face hub, as a recipe names them where a path is expected.

    hf://OWNER/NAME@REVISION[:CONFIG[/SPLIT]]

REVISION is a commit of 40 hexadecimal digits, a branch or a tag; without it, it is the main branch. Without CONFIG, it
is the default one, and without SPLIT all of its splits are read. The rows of a reference with a commit are stored as
Parquet in the state folder (tasks/data/hub_data.py), where they are read like a user's own files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from models.base.disk import state_folder
from models.base.errors import UserError, shortened

SCHEME = "hf://"
FOLDER = "hub_data"
"""Folder of the rows of hub data in the state folder."""
MAIN = "main"
"""Revision of a reference that names none."""
COMMIT = re.compile("[0-9a-f]{40}")
REFERENCE = re.compile(
    r"hf://(?:datasets/)?(?P<repository>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"(?:@(?P<revision>[\w./-]{1,200}))?(?::(?P<config>[^/:\s]{1,200})(?:/(?P<split>\w+(?:\.\w+)*))?)?"
)

DataPath = Path | str
"""A path on this machine, or the text of a hub reference."""


class HubReference(NamedTuple):
    """A data set on the hub, or a part of it."""

    repository: str
    """OWNER/NAME."""
    revision: str = MAIN
    config: str = ""
    """Configuration; "" for the default one."""
    split: str = ""
    """Split of the configuration; "" for all."""

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit."""
        return COMMIT.fullmatch(self.revision) is not None

    @property
    def repository_folder(self) -> Path:
        """Folder of the rows of all commits of the repository."""
        return state_folder() / FOLDER / self.repository.replace("/", "--")

    @property
    def folder(self) -> Path:
        """Folder of its rows, for a reference with a commit. No name in it states a split."""
        part = f"config-{quote(self.config, safe='')}" if self.config else "config"
        part += f"-split-{self.split}" if self.split else ""
        return self.repository_folder / quote(self.revision, safe="") / part

    def __str__(self) -> str:
        """Return the reference as a recipe names it, with its revision."""
        part = f":{self.config}" if self.config else ""
        return f"{SCHEME}{self.repository}@{self.revision}{part}" + (f"/{self.split}" if self.split else "")


def is_hub_reference(path: DataPath) -> bool:
    """Return whether a path is a hub reference; `Path` makes one slash of two."""
    return str(path).startswith(("hf://", "hf:/"))


def parse_hub_reference(path: DataPath) -> HubReference:
    """Parse a hub reference.

    Raises:
        UserError: it has another form.
    """
    text = SCHEME + str(path).removeprefix("hf:").lstrip("/")
    known = REFERENCE.fullmatch(text)
    if known is None:
        raise UserError(
            f"{shortened(text, 120)} is not a data set of the hub; write hf://OWNER/NAME@COMMIT, with :CONFIG or "
            ":CONFIG/SPLIT after it for a part of it"
        )
    return HubReference(known["repository"], known["revision"] or MAIN, known["config"] or "", known["split"] or "")
