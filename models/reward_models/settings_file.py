"""Reader of the JSON files next to a reward model's weights, which describe how the model is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from models.base.errors import UserError


def read_settings_file(file: Path, kind: Any, of: str) -> Any:
    """Read a JSON file as a value of the type `kind`; None if the file does not exist.

    Args:
        of: subject of the settings, for the error.

    Raises:
        UserError: the file is not valid.
    """
    if not file.is_file():
        return None
    try:
        return TypeAdapter(kind).validate_json(file.read_bytes())
    except ValueError as error:
        raise UserError(f"{file}: does not describe {of} ({str(error).splitlines()[0]})") from None
