"""The Data Docs: the results of every expectation in every file, as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.datasets.suites import DataCheck
from tasks.data.expectations import Failing
from tasks.pages.html_page import escaped, whole_page
from tasks.pages.thumbnails import sample_of_images, with_thumbnails

LONGEST_VALUE = 200
"""Maximum number of characters that are shown of a failing value."""
MOST_VALUES = 500
"""Maximum number of failing rows that are shown of one check; the quarantine contains all of them."""


@dataclass(frozen=True)
class Finding:
    """Result of one check on one file."""

    check: DataCheck
    held: bool
    failing: tuple[Failing, ...] = ()
    """Rows that fail, if the check is about rows: the first MOST_VALUES of them."""
    count: int = 0
    """Total number of failing rows."""
    observed: str = ""
    """The number that was compared with the bounds, if the check is about the whole column or table."""


@dataclass(frozen=True)
class FileFindings:
    """Results of all checks on one file."""

    name: str
    rows: int
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> int:
        """Number of critical checks that do not hold."""
        return sum(not finding.held and finding.check.severity == "critical" for finding in self.findings)

    @property
    def warned(self) -> int:
        """Number of checks of severity "warning" that do not hold."""
        return sum(not finding.held and finding.check.severity == "warning" for finding in self.findings)


def page(data: str, files: Sequence[FileFindings], bounds: Mapping[str, Any], images: Iterable[str] = ()) -> str:
    """Render the whole page.

    Args:
        data: name of the data set.
        files: files in the order in which they are shown.
        bounds: the settings that checks name as parameters.
        images: names of the images of the data set.
    """
    rows, checks = sum(file.rows for file in files), sum(len(file.findings) for file in files)
    failed, warned = sum(file.failed for file in files), sum(file.warned for file in files)
    verdict = "every expectation holds" if not failed + warned else f"{failed} fail, {warned} warn"
    lead = f"{rows:,} rows in {len(files)} files checked against {checks} expectations: {verdict}."
    sections = "".join(_file(file, bounds) for file in files)
    return whole_page(f"Data Docs: {data}", lead, f"{_overview(files)}{sections}{sample_of_images(images)}")


def _overview(files: Sequence[FileFindings]) -> str:
    lines = [
        f'<tr><td><a href="#{escaped(file.name)}">{escaped(file.name)}</a></td><td class="number">{file.rows:,}</td>'
        f'<td class="number">{len(file.findings)}</td><td>{_mark(file.failed, file.warned)}</td></tr>'
        for file in files
    ]
    head = '<tr><th>file</th><th class="number">rows</th><th class="number">expectations</th><th>outcome</th></tr>'
    return f"<table>{head}{''.join(lines)}</table>"


def _file(file: FileFindings, bounds: Mapping[str, Any]) -> str:
    """Render the section of one file, failed checks first."""
    order = sorted(file.findings, key=lambda finding: (finding.held, finding.check.severity != "critical"))
    head = "<tr><th></th><th>column</th><th>expectation</th><th>found</th></tr>"
    lines = "".join(_finding(finding, bounds) for finding in order)
    return f'<h2 id="{escaped(file.name)}">{escaped(file.name)}</h2><table>{head}{lines}</table>'


def _finding(finding: Finding, bounds: Mapping[str, Any]) -> str:
    check = finding.check
    style, sign = (
        ("held", "✔") if finding.held else ("failed", "✘") if check.severity == "critical" else ("warned", "!")
    )
    arguments = ", ".join(f"{key} {_bound(value, bounds)}" for key, value in check.arguments.items())
    expectation = f"<code>{escaped(check.type)}</code>" + (
        f" <span class='why'>{escaped(arguments)}</span>" if arguments else ""
    )
    result = "holds" if finding.held else escaped(check.reason)
    if finding.observed:
        result += f" (observed {escaped(finding.observed)})"
    if finding.failing:
        shown = "".join(
            f"<tr><td class='number'>{value.row}</td><td><code>{escaped(value.id)}</code></td>"
            f"<td><pre>{with_thumbnails(value.value[:LONGEST_VALUE])}</pre></td></tr>"
            for value in finding.failing
        )
        remaining = finding.count - len(finding.failing)
        more = f"<p>{remaining} more in the quarantine.</p>" if remaining > 0 else ""
        result += (
            f"<details><summary>{finding.count} rows</summary><table><tr><th class='number'>row</th><th>id</th>"
            f"<th>value</th></tr>{shown}</table>{more}</details>"
        )
    return (
        f"<tr><td class='{style}'>{sign}</td><td><code>{escaped(check.column or 'table')}</code></td>"
        f"<td>{expectation}<br><span class='why'>{escaped(check.why)}</span></td><td class='{style}'>{result}</td></tr>"
    )


def _bound(value: Any, bounds: Mapping[str, Any]) -> str:
    if isinstance(value, Mapping) and "$PARAMETER" in value:
        return f"{bounds[value['$PARAMETER']]}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _mark(failed: int, warned: int) -> str:
    if failed:
        return f"<span class='failed'>✘ {failed} fail</span>" + (f", {warned} warn" if warned else "")
    return f"<span class='warned'>! {warned} warn</span>" if warned else "<span class='held'>✔ all hold</span>"
