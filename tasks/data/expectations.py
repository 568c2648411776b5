"""Checks of rows with Great Expectations; the only module that imports it.

Rows come in pieces, so that data need not fit in memory; the checks of a file are set up once. A check that looks at
each row alone is run on every piece. A check that looks at a whole column is run once, on the columns that it needs.

Great Expectations takes seconds to import, so it is imported inside the functions that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from models.base.errors import UserError
from models.datasets.suites import DataCheck
from models.datasets.validation import ValidationSettings

if TYPE_CHECKING:
    from great_expectations.checkpoint.checkpoint import Checkpoint
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

AMONG_ALL = frozenset(
    {
        "expect_column_values_to_be_unique",
        "expect_column_values_to_be_increasing",
        "expect_column_values_to_be_decreasing",
        "expect_column_value_z_scores_to_be_less_than",
    }
)
"""Expectations that name failing rows, but depend on the values of the other rows."""


@dataclass(frozen=True)
class Failing:
    """A row that fails a check."""

    row: int
    """Its position in the file, from 0."""
    id: str
    value: str


@dataclass(frozen=True)
class CheckOutcome:
    """Result of a check on the rows that it was given."""

    held: bool
    failing: tuple[Failing, ...] = ()
    """Failing rows, if the check is about rows."""
    observed: str = ""
    """The number that was compared with the bounds, if the check is about a whole column or table; otherwise empty."""


def names_rows(check: DataCheck) -> bool:
    """Return whether a check reports which rows fail, and not only that a column or table fails."""
    from great_expectations.expectations.expectation import ColumnMapExpectation

    return issubclass(_kind(check), ColumnMapExpectation)


def looks_at_rows(check: DataCheck) -> bool:
    """Return whether a check decides on each row independently of the others."""
    return names_rows(check) and check.type not in AMONG_ALL and "mostly" not in check.arguments


def open_context() -> EphemeralDataContext:
    """Open a context of Great Expectations that writes nothing to the disk."""
    import great_expectations
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = great_expectations.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)  # type: ignore[assignment]
    for site in list(context.variables.data_docs_sites or {}):
        context.delete_data_docs_site(site)
    context.data_sources.add_pandas("prepared")
    return context


class Expectations:
    """A set of checks of one file, set up once and run on any number of pieces of it.

    Args:
        context: where suite, data and results are kept.
        data: name of the data set.
        file: name of the file.
        part: distinguishes these checks from others of the file.
        checks: the checks to run.
        settings: the bounds, which the checks name as parameters.

    Raises:
        UserError: Great Expectations does not know a check.
    """

    def __init__(
        self,
        context: EphemeralDataContext,
        data: str,
        file: str,
        part: str,
        checks: Sequence[DataCheck],
        settings: ValidationSettings,
    ) -> None:
        self.data, self.file, self.checks, self.settings = data, file, checks, settings
        self._checkpoint = _checkpoint(context, f"{Path(file).stem}, {part}", checks) if checks else None

    def run(self, rows: pd.DataFrame) -> list[CheckOutcome]:
        """Run the checks on the rows and return their outcomes, [checks].

        Args:
            rows: rows with the computed columns, the position in the file as `row`, and `id`.

        Raises:
            UserError: a check cannot be run on these columns.
        """
        if self._checkpoint is None:
            return []
        from great_expectations.core.run_identifier import RunIdentifier

        outcome = self._checkpoint.run(
            batch_parameters={"dataframe": rows},
            expectation_parameters=self.settings.model_dump(),
            run_id=RunIdentifier(run_name=self.data),
        )
        outcomes: dict[int, CheckOutcome] = {}
        for result in next(iter(outcome.run_results.values())).results:
            configuration: Any = result.expectation_config
            number: int = configuration.meta["check"]
            check = self.checks[number]
            if not result.success and (reason := _exception(result.exception_info or {})):
                raise UserError(f"{self.file}: {check.type} of '{check.checked}': {reason}")
            outcomes[number] = _outcome(check, result)
        return [outcomes[number] for number in range(len(self.checks))]


def _checkpoint(context: EphemeralDataContext, name: str, checks: Sequence[DataCheck]) -> Checkpoint:
    from great_expectations import Checkpoint, ExpectationSuite, ValidationDefinition

    suite = ExpectationSuite(
        name=name, expectations=[_expectation(check, number) for number, check in enumerate(checks)]
    )
    source: Any = context.data_sources.get("prepared")
    asset = source.add_dataframe_asset(name)
    definition = ValidationDefinition(
        name=name, data=asset.add_batch_definition_whole_dataframe("all rows"), suite=context.suites.add(suite)
    )
    checkpoint = Checkpoint(
        name=name,
        validation_definitions=[context.validation_definitions.add(definition)],
        # The position in addition to the id: ids may be missing or, which is one of the checks, repeated.
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["row", "id"]},
    )
    return context.checkpoints.add(checkpoint)


def _outcome(check: DataCheck, result: Any) -> CheckOutcome:
    details = result.result
    failing = () if result.success else details.get("unexpected_index_list") or ()
    observed = details.get("observed_value")
    return CheckOutcome(
        held=bool(result.success),
        failing=tuple(
            Failing(int(row["row"]), str(row.get("id")), str(row.get(check.checked, row.get(check.column, ""))))
            for row in failing
        ),
        observed="" if observed is None or isinstance(observed, list | dict) else _short(observed),
    )


def _kind(check: DataCheck) -> Any:
    """Return Great Expectations' class of a check.

    Raises:
        UserError: it does not exist.
    """
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl

    try:
        return get_expectation_impl(check.type)
    except ExpectationNotFoundError:
        raise UserError(f"expectation suite: Great Expectations has no '{check.type}'") from None


def _expectation(check: DataCheck, number: int) -> Any:
    """Return the expectation that a check describes; `number` identifies the check in the results."""
    column = {"column": check.checked} if check.checked else {}
    try:
        return _kind(check)(
            **column, **check.arguments, severity=check.severity, notes=check.why, meta={"check": number}
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"expectation suite: {check.type}: {' '.join(str(error).split())}") from None


def _exception(info: dict[str, Any]) -> str:
    """Return the first exception in Great Expectations' results of a check, "" if there is none."""
    accounts = [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
    for account in accounts:
        if account.get("raised_exception"):
            return " ".join(str(account.get("exception_message")).split())
    return ""


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
