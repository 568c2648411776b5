"""The Data Docs: what every expectation found in every file, as one HTML page that needs nothing beside it.

MLflow shows an HTML artifact alone in a sandbox: no style sheet, image or script that lies beside it is loaded. So the
style stands in the page, what is long is folded by the browser itself, and there is no script.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.datasets.suites import Check
from tasks.expectations import Failing

LONGEST_VALUE = 200
"""Characters shown of a failing value."""
MOST_VALUES = 500
"""Failing rows shown of one check; the quarantine holds them all."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; margin: 2rem auto; max-width: 72rem; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
.lead { color: #52606d; margin: .3rem 0 1.6rem; }
table { border-collapse: collapse; width: 100%; margin: .4rem 0 1rem; }
th { text-align: left; font-weight: 600; color: #52606d; border-bottom: 2px solid #cbd2d9; }
th, td { padding: .35rem .8rem .35rem 0; vertical-align: top; } td { border-bottom: 1px solid #e4e7eb; }
td.number, th.number { text-align: right; }
.held { color: #2b8a3e; } .failed { color: #c92a2a; font-weight: 600; } .warned { color: #d9480f; font-weight: 600; }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: #f5f7fa; border-radius: 4px; padding: .1rem .3rem; }
pre { padding: .4rem .6rem; margin: .2rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; color: #52606d; } .why { color: #52606d; }
a { color: #0b7285; text-decoration: none; }
"""


@dataclass(frozen=True)
class Finding:
    """What one check found in one file."""

    check: Check
    held: bool
    failing: tuple[Failing, ...] = ()
    """Rows that fail, where the check is about rows: the first MOST_VALUES of them."""
    count: int = 0
    """How many fail in all."""
    observed: str = ""
    """The number that was held against the bounds, where the check is about the whole column or table."""


@dataclass(frozen=True)
class FileFindings:
    """What all checks found in one file."""

    name: str
    rows: int
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> int:
        """Critical checks that do not hold."""
        return sum(not finding.held and finding.check.severity == "critical" for finding in self.findings)

    @property
    def warned(self) -> int:
        """Checks of severity "warning" that do not hold."""
        return sum(not finding.held and finding.check.severity == "warning" for finding in self.findings)


def page(data: str, files: Sequence[FileFindings], bounds: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        data: name of the data set.
        files: in the order in which they are shown.
        bounds: the settings that checks name as parameters.
    """
    rows, checks = sum(file.rows for file in files), sum(len(file.findings) for file in files)
    failed, warned = sum(file.failed for file in files), sum(file.warned for file in files)
    verdict = "every expectation holds" if not failed + warned else f"{failed} fail, {warned} warn"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>Data Docs: {_text(data)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Data Docs: {_text(data)}</h1>"
        f'<p class="lead">{rows:,} rows in {len(files)} files held against {checks} expectations: {verdict}.</p>'
        f"{_overview(files)}{''.join(_file(file, bounds) for file in files)}</body></html>\n"
    )


def _overview(files: Sequence[FileFindings]) -> str:
    lines = [
        f'<tr><td><a href="#{_text(file.name)}">{_text(file.name)}</a></td><td class="number">{file.rows:,}</td>'
        f'<td class="number">{len(file.findings)}</td><td>{_mark(file.failed, file.warned)}</td></tr>'
        for file in files
    ]
    head = '<tr><th>file</th><th class="number">rows</th><th class="number">expectations</th><th>outcome</th></tr>'
    return f"<table>{head}{''.join(lines)}</table>"


def _file(file: FileFindings, bounds: Mapping[str, Any]) -> str:
    """Section of one file, what does not hold first."""
    order = sorted(file.findings, key=lambda finding: (finding.held, finding.check.severity != "critical"))
    head = "<tr><th></th><th>column</th><th>expectation</th><th>found</th></tr>"
    lines = "".join(_finding(finding, bounds) for finding in order)
    return f'<h2 id="{_text(file.name)}">{_text(file.name)}</h2><table>{head}{lines}</table>'


def _finding(finding: Finding, bounds: Mapping[str, Any]) -> str:
    check = finding.check
    style, sign = (
        ("held", "✔") if finding.held else ("failed", "✘") if check.severity == "critical" else ("warned", "!")
    )
    arguments = ", ".join(f"{key} {_bound(value, bounds)}" for key, value in check.arguments.items())
    asked = f"<code>{_text(check.type)}</code>" + (f" <span class='why'>{_text(arguments)}</span>" if arguments else "")
    said = "holds" if finding.held else _text(check.reason)
    if finding.observed:
        said += f" (observed {_text(finding.observed)})"
    if finding.failing:
        shown = "".join(
            f"<tr><td class='number'>{value.row}</td><td><code>{_text(value.id)}</code></td>"
            f"<td><pre>{_text(value.value[:LONGEST_VALUE])}</pre></td></tr>"
            for value in finding.failing
        )
        left = finding.count - len(finding.failing)
        more = f"<p>{left} more in the quarantine.</p>" if left > 0 else ""
        said += (
            f"<details><summary>{finding.count} rows</summary><table><tr><th class='number'>row</th><th>id</th>"
            f"<th>value</th></tr>{shown}</table>{more}</details>"
        )
    return (
        f"<tr><td class='{style}'>{sign}</td><td><code>{_text(check.column or 'table')}</code></td>"
        f"<td>{asked}<br><span class='why'>{_text(check.why)}</span></td><td class='{style}'>{said}</td></tr>"
    )


def _bound(value: Any, bounds: Mapping[str, Any]) -> str:
    if isinstance(value, Mapping) and "$PARAMETER" in value:
        return f"{bounds[value['$PARAMETER']]}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _mark(failed: int, warned: int) -> str:
    if failed:
        return f"<span class='failed'>✘ {failed} fail</span>" + (f", {warned} warn" if warned else "")
    return f"<span class='warned'>! {warned} warn</span>" if warned else "<span class='held'>✔ all hold</span>"


def _text(text: str) -> str:
    """Text with nothing in it that a browser acts on; control characters are shown as what they are."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return html.escape(shown)
