"""Validation of prepared data: files are checked by suites, failing rows are quarantined, sound rows are written.

Every file `KIND_SPLIT.parquet` of a folder is checked against the suite `data/expectations/KIND.yaml`. All outputs are
written under one folder:

    data_docs/index.html    the report, one page: every file, every expectation, failing values
    quarantine.parquet      the rows that failed, with the reason
    clean/                  the rest, under the same names, with the images; only if few enough failed, and complete

Files are read in pieces, three times: to compare rows, to check them and to write them. Of each row, only hashes and
places of failures are kept. A validation that was killed continues after its last piece.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from models.base.atomic_write import replace_file, replace_folder
from models.base.errors import UserError
from models.base.images import open_images
from models.base.package_files import PROJECT
from models.datasets import quarantine
from models.datasets.image_table import copy_images
from models.datasets.prepare import notes_of
from models.datasets.quarantine import EXAMPLES, Failed, FileFailures, counts_by_reason, row_name, why_stop
from models.datasets.repeated_problems import PROBLEM_COLUMNS, first_of_repeated
from models.datasets.row_checks import CheckAnswers, CountTokens, Facts, ParseAnswer, computed_columns, facts_of
from models.datasets.row_checks import neighbours_of as neighbours_among
from models.datasets.row_groups import row_groups
from models.datasets.schema import COLUMNS, MANIFEST, read_manifest
from models.datasets.suites import DataCheck, Suite, read_suite
from models.datasets.validation import ValidationReport, ValidationSettings
from tasks.data import expectations
from tasks.data.expectations import CheckOutcome, Expectations, Failing
from tasks.data.piece_verdicts import PieceVerdict, PieceVerdicts
from tasks.data.split_files import SplitFile, sources_of
from tasks.pages.data_docs import MOST_VALUES, FileFindings, Finding, page

SUITES = PROJECT / "data" / "expectations"
"""Folder of the project's suites."""
Advance = Callable[[int], None]
"""Called with the number of rows that were checked since the last call."""


def unseen(rows: int) -> None:
    """Ignore progress: the default of `validate`."""


@dataclass
class _Record:
    """Outcomes of a check on a file so far."""

    check: DataCheck
    held: bool = True
    failing: list[NDArray[np.int64]] = field(default_factory=list)
    shown: list[Failing] = field(default_factory=list)
    observed: str = ""

    def add(self, outcome: CheckOutcome) -> None:
        self.held &= outcome.held
        self.failing.append(np.array([failing.row for failing in outcome.failing], dtype=np.int64))
        self.shown += outcome.failing[: max(0, MOST_VALUES - len(self.shown))]
        self.observed = outcome.observed or self.observed

    @property
    def rows(self) -> NDArray[np.int64]:
        """Positions of the rows that fail."""
        return np.concatenate([np.empty(0, np.int64), *self.failing])


@dataclass(frozen=True)
class _Findings:
    """Results of the checks of one file."""

    findings: FileFindings
    failures: FileFailures
    warnings: list[str]
    stops: list[str]
    """Failed critical checks of whole columns or of the table, which stop the run: no row can be quarantined."""


def validate(
    folder: Path,
    settings: ValidationSettings,
    count_tokens: CountTokens,
    parse_answer: ParseAnswer,
    out: Path,
    suites: Path = SUITES,
    advance: Advance = unseen,
    pieces: Path | None = None,
    held_out: Sequence[Path] = (),
    count_prompts: CountTokens | None = None,
    check_answers: CheckAnswers | None = None,
) -> ValidationReport:
    """Check prepared data against its suites, quarantine failing rows and write the rest.

    Args:
        folder: prepared data, `KIND_SPLIT.parquet` files.
        settings: the bounds of the checks.
        count_tokens: returns the number of tokens of each text.
        parse_answer: returns the answer that a completion states, or None.
        out: folder for the outputs. An earlier validation's output in it is replaced.
        suites: folder with a suite for each kind.
        advance: called with the number of rows that were checked.
        pieces: folder for the verdicts so far: pieces found there, left by a killed validation of the same data, are
            not checked again. Removed at the end. None: no verdicts are stored.
        count_prompts: tokens of each prompt with the recipe's system prompt and template; None: as of any text.
        held_out: other prepared data, none of whose prompts may be in the rows that are trained or validated on.
        check_answers: returns the verifier's result on the expected answers.

    Raises:
        UserError: files are unreadable, empty or lack a column; or more rows of some failed than
            `settings.quarantine_share` allows (the report and the quarantine are then written, `clean/` is not).
            The one line names every such file.
    """
    images = open_images(folder)
    sources = sources_of(folder)
    others = [source for other in held_out for source in sources_of(other)]
    read = {kind: read_suite(suites, kind) for kind in {source.kind for source in sources}}
    for name in ("clean", "data_docs"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "quarantine.parquet").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)

    neighbours = neighbours_among(_IdsAndPrompts(sources, others), settings.ngram, settings.image_distance)
    context = expectations.open_context()
    checked: list[_Findings] = []
    for source in sources:
        facts = _facts(source)

        def look(start: int, frame: pd.DataFrame, source: SplitFile = source, facts: Facts = facts) -> pd.DataFrame:
            reading = count_tokens, parse_answer, count_prompts, check_answers
            computed = computed_columns(source.split, frame, neighbours, facts, *reading)
            return pd.concat([frame, computed], axis="columns").assign(row=np.arange(start, start + len(frame)))

        def checker(part: str, checks: Sequence[DataCheck], file: str = source.name) -> Expectations:
            return Expectations(context, folder.name, file, part, checks, settings)

        checked.append(_check(source, read[source.kind], look, checker, advance, PieceVerdicts(pieces)))
    docs = out / "data_docs" / "index.html"
    docs.parent.mkdir()
    whole = page(folder.name, [file.findings for file in checked], settings.model_dump(), images)
    docs.write_text(whole, encoding="utf-8")

    failures = {file.failures.file: file.failures for file in checked}
    stops = [stop for file in checked for stop in file.stops]
    stops += why_stop(list(failures.values()), settings.quarantine_share)
    if pieces is not None:
        shutil.rmtree(pieces, ignore_errors=True)
    _write_quarantine(sources, failures, out / "quarantine.parquet")
    if stops:
        raise UserError(*stops, f"failing rows are in {out / 'quarantine.parquet'}, the report is {docs}")
    _write_clean(folder, sources, failures, out / "clean")
    set_aside = {name: len(of_file.rows) for name, of_file in failures.items()}
    return ValidationReport(
        passed=not any(set_aside.values()),
        rows=sum(source.rows for source in sources),
        quarantined=sum(set_aside.values()),
        by_reason=counts_by_reason(failures.values()),
        by_file={source.name: (source.rows, set_aside[source.name]) for source in sources},
        warnings=[warning for file in checked for warning in file.warnings],
        notes=notes_of(read_manifest(folder)) if (folder / MANIFEST).is_file() else [],
        expectations=sum(len(file.findings.findings) for file in checked),
        docs=str(docs),
        clean=str(out / "clean"),
        quarantine=str(out / "quarantine.parquet"),
    )


@dataclass(frozen=True)
class _IdsAndPrompts:
    """The ids and prompts that rows of other files are compared with, in pieces; it can be iterated repeatedly."""

    sources: Sequence[SplitFile]
    held_out: Sequence[SplitFile] = ()
    """Files of other data sets: their ids are not compared."""

    def __iter__(self) -> Iterator[tuple[str, pd.DataFrame]]:
        for source in self.sources:
            for _, table in source.pieces(("id", "prompt")):
                yield source.split, table.to_pandas()
        for source in self.held_out:
            for _, table in source.pieces(("prompt",)):
                yield "gate", table.to_pandas().assign(id="")


def _facts(source: SplitFile) -> Facts:
    columns = [name for name in ("answer", "level", "flaw") if name in COLUMNS[source.kind]]
    facts = facts_of((table.to_pandas() for _, table in source.pieces(columns)), has_images=source.has_images)
    if source.kind != "problems" or source.split != "gate":
        return facts
    repeated = first_of_repeated(lambda: (table.to_pandas() for _, table in source.pieces(PROBLEM_COLUMNS)))
    return replace(facts, first_of_repeated=repeated)


def _check(
    source: SplitFile,
    suite: Suite,
    look: Callable[[int, pd.DataFrame], pd.DataFrame],
    checker: Callable[[str, Sequence[DataCheck]], Expectations],
    advance: Advance,
    verdicts: PieceVerdicts,
) -> _Findings:
    """Run the checks of one file: those of rows piece by piece, the others at its end on the columns they need.

    Args:
        source: the file.
        suite: the suite of its kind.
        look: position and rows of a piece -> the same with computed columns and `row`.
        checker: builds the object that runs some checks.
        advance: called with the progress.
        verdicts: verdicts on the pieces that were already checked.
    """
    records: list[_Record] = []
    of_rows: Expectations | None = None
    kept: dict[str, list[pd.Series]] = {}
    names: list[str] = []
    for number, (start, table) in enumerate(source.pieces()):
        verdict = verdicts.read(source.name, number)
        whole = look(start, table.to_pandas()) if verdict is None else verdict.columns
        if of_rows is None:
            names = list(whole.columns) if verdict is None else verdict.names
            records = [_Record(check) for check in suite.for_file(source.split, names)]
            by_row = [record for record in records if expectations.looks_at_rows(record.check)]
            among_all = [record for record in records if not expectations.looks_at_rows(record.check)]
            of_rows = checker("rows", [record.check for record in by_row])
            needed = {record.check.checked for record in among_all}
            if any(expectations.names_rows(record.check) for record in among_all):
                needed.add("id")
            kept = {name: [] for name in names if name in needed}
        if verdict is None:
            verdict = PieceVerdict(names, of_rows.run(whole), whole[list(kept)])
            verdicts.write(source.name, number, verdict)
        for record, outcome in zip(by_row, verdict.outcomes, strict=True):
            record.add(outcome)
        for name, pieces in kept.items():
            pieces.append(verdict.columns[name])
        advance(table.num_rows)
    # A check of the table sees every column's name and the full number of rows; columns that it does not need hold
    # zeros.
    nothing = pd.Series(np.zeros(source.rows, dtype=np.int8))
    columns = {name: pd.concat(kept[name], ignore_index=True) if name in kept else nothing for name in names}
    rows = pd.DataFrame(columns | {"row": np.arange(source.rows)})
    of_all = checker("all", [record.check for record in among_all])
    for record, outcome in zip(among_all, of_all.run(rows), strict=True):
        record.add(outcome)
    return _findings_of(source, records)


def _findings_of(source: SplitFile, records: Sequence[_Record]) -> _Findings:
    failed: dict[tuple[str, str], list[_Record]] = {}
    warnings: list[str] = []
    stops: list[str] = []
    for record in records:
        if record.held:
            continue
        check, rows = record.check, len(record.rows)
        observed = f"observed {record.observed}"
        if check.severity == "warning":
            seen = f"in {rows} rows" if rows else observed
            warnings.append(f"{source.name}: column '{check.column}': {check.reason} ({seen})")
        elif rows:
            failed.setdefault((check.column, check.reason), []).append(record)
        else:
            stops.append(f"{source.name}: column '{check.column}': {check.reason} ({observed})")
    findings = tuple(
        Finding(record.check, record.held, tuple(record.shown), len(record.rows), record.observed) for record in records
    )
    failures = FileFailures(
        source.name,
        source.rows,
        tuple(_failed(column, reason, of_reason) for (column, reason), of_reason in sorted(failed.items())),
    )
    return _Findings(FileFindings(source.name, source.rows, findings), failures, warnings, stops)


def _failed(column: str, reason: str, records: Sequence[_Record]) -> Failed:
    rows = np.unique(np.concatenate([record.rows for record in records]))
    ids = {failing.row: failing.id for record in records for failing in record.shown}
    return Failed(column, reason, rows, tuple(row_name(ids.get(int(row)), int(row)) for row in rows[:EXAMPLES]))


def _write_quarantine(sources: Sequence[SplitFile], failures: Mapping[str, FileFailures], path: Path) -> None:
    schema = pa.schema([(name, pa.string()) for name in quarantine.COLUMNS])
    with replace_file(path) as partial_file, row_groups(partial_file, schema) as groups:
        for source in sorted(sources, key=lambda source: source.name):
            of_file = failures[source.name]
            for start, table in source.pieces() if of_file.failed else ():
                groups.add(pa.Table.from_pylist([*quarantine.quarantined(of_file, table.to_pandas(), start)], schema))


def _write_clean(folder: Path, sources: Sequence[SplitFile], failures: Mapping[str, FileFailures], clean: Path) -> None:
    """Write the sound rows and their manifest; the folder appears only when it is complete."""
    left = {source.name: source.rows - len(failures[source.name].rows) for source in sources}
    for source in sources:
        if not left[source.name]:
            raise UserError(f"{source.path}: no row passed its checks")
    with replace_folder(clean) as partial:
        for source in sources:
            sound = np.ones(source.rows, dtype=bool)
            sound[failures[source.name].rows] = False
            with row_groups(partial / source.name, source.schema) as groups:
                for start, table in source.pieces():
                    groups.add(table.filter(pa.array(sound[start : start + table.num_rows])).cast(source.schema))
        copy_images(folder, partial)
        if (folder / MANIFEST).is_file():
            manifest = read_manifest(folder) | {"rows": left}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
