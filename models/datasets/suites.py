"""Expectation suites as data: the content of `data/expectations/KIND.yaml`, read whole and checked before use.

A suite is a list of checks. Great Expectations defines the meaning of a check. Its name, the severity of a failure and
the column that a user must look at are defined here, so that a message can be written without that library.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.base.errors import UserError
from models.datasets.row_checks import COMPUTED
from models.datasets.schema import COLUMNS, Kind
from models.datasets.strict_yaml import YamlError, parse_yaml
from models.datasets.text_files import not_utf8


@dataclass(frozen=True)
class DataCheck:
    """One expectation about one column, or about the whole table."""

    type: str
    """Great Expectations' name of the expectation."""
    checked: str
    """Column that is checked, computed or not; "" for the whole table."""
    arguments: dict[str, Any]
    """Other arguments; `{"$PARAMETER": name}` stands for the setting of that name."""
    severity: Literal["critical", "warning"]
    """critical: failing rows are set aside. warning: failures are only reported."""
    reason: str
    """Short description of the problem of a row that fails."""
    why: str
    """Consequence if such a row passed."""
    splits: tuple[str, ...]
    """Splits that the check applies to."""

    @property
    def column(self) -> str:
        """The column that a user must look at."""
        return COMPUTED.get(self.checked, self.checked)


class _Entry(BaseModel):
    """One entry of the file; it becomes a check for each of its columns."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    type: str = Field(pattern="^expect_[a-z_]+$")
    columns: tuple[str, ...] = ("",)
    arguments: dict[str, Any]
    severity: Literal["critical", "warning"]
    reason: str = Field(min_length=1)
    why: str = Field(min_length=1)
    splits: tuple[Literal["train", "validation", "gate"], ...] = ("train", "validation", "gate")


@dataclass(frozen=True)
class Suite:
    """The checks of one kind of data."""

    kind: Kind
    checks: tuple[DataCheck, ...]

    def for_file(self, split: str, columns: list[str]) -> list[DataCheck]:
        """Return the checks of a file of this split that has these columns, computed ones included."""
        return [
            check
            for check in self.checks
            if split in check.splits and (check.checked not in COMPUTED or check.checked in columns)
        ]


def read_suite(folder: Path, kind: Kind) -> Suite:
    """Read `KIND.yaml` of a folder.

    Raises:
        UserError: the file is missing, is not YAML, or a check is malformed or names a column that the kind lacks.
    """
    path = folder / f"{kind}.yaml"
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: expectation suite not found") from None
    except UnicodeDecodeError:
        raise UserError(not_utf8(path)) from None
    except YamlError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    if not isinstance(content, dict) or set(content) != {"kind", "expectations"} or content["kind"] != kind:
        raise UserError(f"{path}: a suite has two keys, 'kind: {kind}' and 'expectations'")
    checks: list[DataCheck] = []
    for number, raw in enumerate(content["expectations"] or [], start=1):
        try:
            entry = _Entry.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the entry"
            raise UserError(f"{path}: expectation {number}: {where}: {first['msg']}") from None
        for column in entry.columns:
            if column and column not in COLUMNS[kind] and column not in COMPUTED:
                raise UserError(f"{path}: expectation {number} ({entry.type}): {kind} have no column '{column}'")
            name = COMPUTED.get(column, column)
            checks.append(
                DataCheck(
                    type=entry.type,
                    checked=column,
                    arguments=entry.arguments,
                    severity=entry.severity,
                    reason=entry.reason.replace("{column}", name),
                    why=entry.why.replace("{column}", name),
                    splits=entry.splits,
                )
            )
    return Suite(kind=kind, checks=tuple(checks))
