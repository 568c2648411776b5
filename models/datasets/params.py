"""What the stages of dvc.yaml share: a section of a YAML file, checked against its type, and one-line errors."""

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
"""Begins the one line that a failing stage ends its stderr with; whoever runs the stage finds the message by it."""

Section = TypeVar("Section", bound=BaseModel)


def read_section(path: Path, section: str) -> Any:
    """The value under a top-level key of a YAML file.

    Raises:
        UserError: no such file, no valid YAML, or no such key.
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
    """The value as that model; `where` begins the message of the UserError, which names the first key that is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}{'.' if key else ''}{key}: {reason}") from error


def run_stage(main: Callable[[], int]) -> int:
    """Runs a stage's entry point: a UserError becomes one line on stderr and exit status 1."""
    try:
        return main()
    except UserError as error:
        print(f"{ERROR_PREFIX}{error}", file=sys.stderr)
        return 1
