"""Curves of several methods as text, as a picture and as a table of points."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.evaluation.learning_curves import CurveBand
from tasks.pages import plots


def curve_lines(bands: Mapping[str, CurveBand], metric: str) -> str:
    """Format one line a method: trainings, last common step, and the value there and the area with intervals."""
    rows = [["method", "trainings", "steps", "last", "area"]]
    for label, band in bands.items():
        steps = f"{band.steps[0]} to {band.steps[-1]}"
        rows.append([label, str(len(band.curves)), steps, f"{band.last:.4g}", f"{band.area:.4g}"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{metric}, 95 % bootstrap intervals over trainings", *lines])


def write_table(file: Path, bands: Mapping[str, CurveBand]) -> None:
    """Write one row a method and step: interquartile mean, band and number of trainings."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "step", "middle", "low", "high", "trainings"])
    for label, band in bands.items():
        for step, *values in zip(band.steps, band.middle, band.low, band.high, strict=True):
            writer.writerow([label, int(step), *(repr(float(value)) for value in values), len(band.curves)])
    write_file(file, text.getvalue())


def write_picture(file: Path, bands: Mapping[str, CurveBand], metric: str) -> None:
    """Write the curves as a PNG file.

    Raises:
        UserError: the name of the file does not end in .png.
    """
    if file.suffix.lower() != ".png":
        raise UserError(f"--png {file}: the name of a picture ends in .png")
    content = io.BytesIO()
    plots.curve_bands(bands, metric).savefig(content, format="png", dpi=120)
    write_file(file, content.getvalue())
