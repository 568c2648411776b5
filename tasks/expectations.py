"""Validation of prepared data with Great Expectations: the one file of the project that imports it.

Every file `KIND_SPLIT.parquet` of a folder is held against the suite `data/expectations/KIND.yaml`. What comes out, all
under one folder:

    data_docs/index.html    the report, one page: every file, every expectation, every failing value
    quarantine.parquet      the rows that failed, with the reason
    clean/                  the rest, under the same names; only where few enough failed, and then complete

Great Expectations takes seconds to import, so that happens inside the functions that need it.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from models.atomic_write import replace_folder
from models.datasets.quarantine import Failure, counts_by_reason, quarantined_rows, sound_rows, why_stop
from models.datasets.row_checks import CountTokens, ParseAnswer, computed_columns, neighbours_of
from models.datasets.schema import (
    COLUMNS,
    MANIFEST,
    Kind,
    Split,
    arrow_schema,
    available,
    file_name,
    read_manifest,
    read_parquet,
    write_rows,
)
from models.datasets.suites import Check, read_suite
from models.datasets.validation import ValidationReport, ValidationSettings
from models.errors import UserError
from tasks.data_docs import Failing, FileFindings, Finding, page

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

SUITES = Path(__file__).resolve().parents[1] / "data" / "expectations"
"""The suites that stand in the project."""


@dataclass(frozen=True)
class _Findings:
    """What the checks of one file found."""

    checked: FileFindings
    failures: list[Failure]
    warnings: list[str]
    stops: list[str]
    """Critical checks of the file as a whole that do not hold: no row can be set aside for them."""


def validate(
    folder: Path,
    settings: ValidationSettings,
    count_tokens: CountTokens,
    parse_answer: ParseAnswer,
    out: Path,
    suites: Path = SUITES,
) -> ValidationReport:
    """Holds prepared data against its suites, sets failing rows aside and writes the rest.

    Args:
        folder: prepared data, `KIND_SPLIT.parquet` files.
        settings: the bounds of the checks.
        count_tokens: tokens of each of some texts.
        parse_answer: the answer that a completion states, or None.
        out: folder for what comes out. An earlier validation's output in it is replaced.
        suites: folder with a suite for each kind.

    Raises:
        UserError: files are unreadable, empty or lack a column; or more rows of some failed than
            `settings.quarantine_share` lets pass (the report and the quarantine are then there, `clean/` is not).
            The one line names every such file.
    """
    files = _files(folder)
    frames = _frames(folder, files)
    read = {kind: read_suite(suites, kind) for kind in {kind for kind, _ in files.values()}}
    for leftover in (out / "clean", out / "data_docs"):
        shutil.rmtree(leftover, ignore_errors=True)
    (out / "quarantine.parquet").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)

    neighbours = neighbours_of(((files[name][1], frame) for name, frame in frames.items()), settings.ngram)
    failures: list[Failure] = []
    warnings: list[str] = []
    stops: list[str] = []
    expectations = 0
    context = _context()
    checked: list[FileFindings] = []
    for name, frame in frames.items():
        kind, split = files[name]
        computed = computed_columns(split, frame, neighbours, count_tokens, parse_answer)
        whole = pd.concat([frame, computed], axis="columns").assign(row=range(len(frame)))
        checks = read[kind].for_file(split, list(whole.columns))
        expectations += len(checks)
        report = _checked(context, folder.name, name, whole, checks, settings)
        checked.append(report.checked)
        failures += report.failures
        warnings += report.warnings
        stops += report.stops
    (out / "data_docs").mkdir()
    (out / "data_docs" / "index.html").write_text(page(folder.name, checked, settings.model_dump()), encoding="utf-8")

    failures.sort()
    quarantined = quarantined_rows(failures, frames)
    write_rows(
        out / "quarantine.parquet",
        quarantined.to_dict("records"),
        pa.schema([(name, pa.string()) for name in quarantined]),
    )
    stops += why_stop(failures, frames, settings.quarantine_share)
    if stops:
        where = f"failing rows are in {out / 'quarantine.parquet'}, the report is {out / 'data_docs' / 'index.html'}"
        raise UserError(*stops, where)
    sound = {name: sound_rows(frame, name, failures) for name, frame in frames.items()}
    _write_clean(folder, {name: (files[name][0], frame) for name, frame in sound.items()}, out / "clean")
    return ValidationReport(
        passed=not failures,
        rows=sum(map(len, frames.values())),
        quarantined=len({(failure.file, failure.row) for failure in failures}),
        by_reason=counts_by_reason(failures),
        by_file={name: (len(frame), len(frame) - len(sound[name])) for name, frame in frames.items()},
        warnings=warnings,
        expectations=expectations,
        docs=str(out / "data_docs" / "index.html"),
        clean=str(out / "clean"),
        quarantine=str(out / "quarantine.parquet"),
    )


def _files(folder: Path) -> dict[str, tuple[Kind, Split]]:
    """Name, kind and split of every file of a prepared data set."""
    files = {file_name(kind, split): (kind, split) for kind, splits in available(folder).items() for split in splits}
    if not files:
        raise UserError(
            f"{folder}: no prepared data: files are named KIND_SPLIT.parquet, such as problems_train.parquet"
        )
    return files


def _frames(folder: Path, files: dict[str, tuple[Kind, Split]]) -> dict[str, pd.DataFrame]:
    """The rows of every file, or one error that names every file without readable rows."""
    frames: dict[str, pd.DataFrame] = {}
    faults: list[str] = []
    for name, (kind, split) in files.items():
        try:
            frames[name] = _rows(folder / name, kind, split)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError(*faults)
    return frames


def _rows(path: Path, kind: Kind, split: Split) -> pd.DataFrame:
    """The rows as they are: nothing is cast, nulls stay. What is not even text or a number stops here."""
    table = read_parquet(path)
    for column in COLUMNS[kind]:
        if column not in table.column_names:
            raise UserError(f"{path}: no column '{column}' (it has {', '.join(table.column_names)})")
    if table.num_rows == 0:
        raise UserError(f"{path}: the {split} split of {kind} is empty")
    for field in arrow_schema(kind):
        column_type = table.schema.field(field.name).type
        fits = (
            pa.types.is_integer(column_type)
            if pa.types.is_integer(field.type)
            else column_type in (pa.string(), pa.large_string())
        )
        if not fits:
            raise UserError(f"{path}: column '{field.name}' holds {column_type}, not {field.type}")
    frame: pd.DataFrame = table.select(list(COLUMNS[kind])).to_pandas()
    return frame


def _write_clean(folder: Path, sound: dict[str, tuple[Kind, pd.DataFrame]], clean: Path) -> None:
    """Writes the sound rows and their manifest; the folder appears when it is whole."""
    for name, (_, frame) in sound.items():
        if frame.empty:
            raise UserError(f"{folder / name}: no row passed its checks")
    with replace_folder(clean) as partial:
        for name, (kind, frame) in sound.items():
            write_rows(partial / name, frame.to_dict("records"), arrow_schema(kind))
        if (folder / MANIFEST).is_file():
            manifest = read_manifest(folder) | {"rows": {name: len(frame) for name, (_, frame) in sound.items()}}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _context() -> EphemeralDataContext:
    """A context of Great Expectations that writes nothing."""
    import great_expectations
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = great_expectations.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)  # type: ignore[assignment]
    for site in list(context.variables.data_docs_sites or {}):
        context.delete_data_docs_site(site)
    context.data_sources.add_pandas("prepared")
    return context


def _checked(
    context: EphemeralDataContext,
    data: str,
    file: str,
    whole: pd.DataFrame,
    checks: list[Check],
    settings: ValidationSettings,
) -> _Findings:
    """Runs the checks of one file through a checkpoint.

    Args:
        context: where suite, data and results are kept.
        data: name of the data set.
        file: name of the file.
        whole: its rows with the computed columns and the position `row`.
        checks: what to run.
        settings: the bounds, which the checks name as parameters.
    """
    from great_expectations import Checkpoint, ExpectationSuite, ValidationDefinition
    from great_expectations.core.run_identifier import RunIdentifier

    name = Path(file).stem
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
        # The position beside the id: ids may be missing or, which is one of the checks, stand on two rows.
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["row", "id"]},
    )
    outcome = context.checkpoints.add(checkpoint).run(
        batch_parameters={"dataframe": whole},
        expectation_parameters=settings.model_dump(),
        run_id=RunIdentifier(run_name=data),
    )
    failures: set[Failure] = set()
    warnings: list[str] = []
    stops: list[str] = []
    findings: list[Finding] = []
    for result in next(iter(outcome.run_results.values())).results:
        configuration: Any = result.expectation_config
        check = checks[configuration.meta["check"]]
        findings.append(_finding(check, result))
        if result.success:
            continue
        if result.exception_info and _exception(result.exception_info):
            raise UserError(f"{file}: {check.type} of '{check.checked}': {_exception(result.exception_info)}")
        rows = [int(entry["row"]) for entry in result.result.get("unexpected_index_list") or ()]
        if check.severity == "warning":
            seen = f"in {len(rows)} rows" if rows else f"observed {_short(result.result.get('observed_value'))}"
            warnings.append(f"{file}: column '{check.column}': {check.reason} ({seen})")
        elif rows:
            failures |= {Failure(file, row, check.column, check.reason) for row in rows}
        else:
            observed = _short(result.result.get("observed_value"))
            stops.append(f"{file}: column '{check.column}': {check.reason} (observed {observed})")
    return _Findings(FileFindings(file, len(whole), tuple(findings)), sorted(failures), warnings, stops)


def _finding(check: Check, result: Any) -> Finding:
    """A result of Great Expectations for the report."""
    details = result.result
    failing = () if result.success else details.get("unexpected_index_list") or ()
    observed = details.get("observed_value")
    return Finding(
        check,
        held=bool(result.success),
        failing=tuple(
            Failing(int(row["row"]), str(row.get("id")), str(row.get(check.checked, row.get(check.column, ""))))
            for row in failing
        ),
        observed="" if observed is None or isinstance(observed, list | dict) else _short(observed),
    )


def _expectation(check: Check, number: int) -> Any:
    """The expectation that a check describes; `number` finds the check again in the results."""
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl

    try:
        kind: Any = get_expectation_impl(check.type)
        column = {"column": check.checked} if check.checked else {}
        return kind(**column, **check.arguments, severity=check.severity, notes=check.why, meta={"check": number})
    except ExpectationNotFoundError:
        raise UserError(f"expectation suite: Great Expectations has no '{check.type}'") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"expectation suite: {check.type}: {' '.join(str(error).split())}") from None


def _exception(info: dict[str, Any]) -> str:
    """The first exception that stands in Great Expectations' account of a check, "" where there is none."""
    accounts = [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
    for account in accounts:
        if account.get("raised_exception"):
            return " ".join(str(account.get("exception_message")).split())
    return ""


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
