"""Functions that the stages of dvc.yaml share: a YAML section checked against its type, and one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from models.base.errors import UserError
from models.datasets.strict_yaml import YamlError, parse_yaml
from models.datasets.text_files import not_utf8

ERROR_PREFIX = "data error: "
"""Prefix of the one line at the end of a failing stage's stderr; the caller of the stage finds the message by it."""

Section = TypeVar("Section", bound=BaseModel)


def read_section(path: Path, section: str) -> Any:
    """Return the value of a top-level key of a YAML file.

    Raises:
        UserError: the file is missing, is not valid YAML, or has no such key.
    """
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise UserError(not_utf8(path)) from None
    except YamlError as error:
        raise UserError(f"{path}: not valid YAML ({error})") from None
    if not isinstance(content, dict) or section not in content:
        raise UserError(f"{path}: no section '{section}'")
    return content[section]


def checked(model: type[Section], value: Any, where: str) -> Section:
    """Return the value as an instance of the model, or raise a UserError that names `where` and the first wrong key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}{'.' if key else ''}{key}: {reason}") from error


def run_stage(main: Callable[[], int]) -> int:
    """Run a stage's entry point: a UserError becomes one line on stderr and exit status 1."""
    try:
        return main()
    except UserError as error:
        print(f"{ERROR_PREFIX}{error}", file=sys.stderr)
        return 1
