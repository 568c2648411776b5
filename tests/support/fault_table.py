"""A table of the effect of each fault.

The table is collected from the tests' reports, because several processes may run the tests. The environment variable
FAULT_TABLE names the file that it is written to.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PROPERTY = "fault"
HEAD = """# Faults

`make faults` injects these faults into real runs. If a fault ended its run, the same command ran once more. The table
shows the outcome. "identical" means that trained weights, the registry's entries and the reward curve equal those of an
undisturbed run, by hash and value. The seconds are the additional time of the runs, with as many tests in parallel as
the machine has cores.
"""


@dataclass
class Table:
    """Rows of the faults that have been injected so far, by test."""

    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the page, with the faults in the order of their tests."""
        lines = [HEAD, "| fault | line that is shown | weights | seconds lost |", "| --- | --- | --- | --- |"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for _, row in sorted(self.rows.items()))]) + "\n"


TABLE = Table()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        for name, row in report.user_properties:
            if name == PROPERTY and isinstance(row, list | tuple):
                TABLE.rows[report.nodeid] = tuple(map(str, row))


def pytest_sessionfinish(session: pytest.Session) -> None:
    wanted = os.environ.get("FAULT_TABLE")
    if wanted and TABLE.rows and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(wanted).write_text(TABLE.text(), encoding="utf-8")
