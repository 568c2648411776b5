"""Files beside a reward model's weights that say how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from models.errors import UserError


def read_beside(file: Path, kind: Any, of: str) -> Any:
    """What a JSON file says, as a value of the type `kind`; None where there is no such file.

    Raises:
        UserError: it is none of ours; `of`: what it should say something of, for the line.
    """
    if not file.is_file():
        return None
    try:
        return TypeAdapter(kind).validate_json(file.read_bytes())
    except ValueError as error:
        raise UserError(f"{file}: says nothing of {of} ({str(error).splitlines()[0]})") from None
