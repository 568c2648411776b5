"""The page of a nightly watch: the champion's answers since it was judged, and the drift of its inputs."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from models.evaluation.drift import Drift, DriftSettings
from models.evaluation.gate.paired_change import MetricChange
from models.evaluation.samples import Numbers, Sample
from tasks.pages.description import number
from tasks.pages.html_page import escaped, table, whole_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_KINDS = 6
"""Kinds of a feature that are listed."""


class DriftPageContents(Protocol):
    """Contents of the page."""

    @property
    def metric(self) -> str: ...
    @property
    def change(self) -> MetricChange | None: ...
    @property
    def problems(self) -> int: ...
    @property
    def drifts(self) -> Sequence[Drift]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def worse(self) -> str: ...
    @property
    def drifted(self) -> str: ...


def page(title: str, shown: DriftPageContents, settings: DriftSettings, figure: Figure | None) -> str:
    """Render the whole page, with the figure embedded."""
    lead = "; ".join(
        (
            f"worse: {shown.worse}" if shown.worse else "its answers are not shown to be worse",
            f"drifted: {shown.drifted}" if shown.drifted else "no drift of its inputs",
        )
    )
    sections = (
        ("Answers", _answers(shown, settings)),
        ("Inputs", _inputs(shown.drifts, settings) + (_picture(figure) if figure is not None else "")),
        ("Not compared, or not as usual", _list(shown.notes)),
    )
    body = "".join(f"<h2>{heading}</h2>{inside}" for heading, inside in sections if inside)
    return whole_page(title, f"{lead}.", body)


def _answers(shown: DriftPageContents, settings: DriftSettings) -> str:
    change = shown.change
    if change is None:
        return ""
    head = ["metric", "when it was judged", "now", f"change [{settings.confidence:.0%}]", "problems", "paired"]
    row = [shown.metric, number(change.before), number(change.after), f"{change.change:+.3f}", f"{shown.problems:,}"]
    return table(head, [[*row, "yes" if change.paired else "no"]])


def _inputs(drifts: Sequence[Drift], settings: DriftSettings) -> str:
    rows = [
        [
            drift.name.replace("_", " "),
            _summary(drift.before),
            _summary(drift.after),
            f"{drift.index:.3f}",
            f"{drift.statistic:.4g}",
            f"{drift.p_value:.2g}" if drift.p_value > 0 else "below 1e-300",
            drift.state,
        ]
        for drift in drifts
    ]
    if not rows:
        return ""
    head = ["feature", "when it was judged", "now", "PSI", "KS or χ²", "p, corrected (Holm)", "state"]
    why = (
        f"shifted: PSI of {settings.shifted:g} or more and p at most {settings.level:g}; drifted: PSI of "
        f"{settings.drifted:g} or more and the same p. The reward score is the mean of a problem's samples."
    )
    return f'{table(head, rows)}<p class="why">{escaped(why)}</p>'


def _summary(sample: Sample) -> str:
    if isinstance(sample, Numbers):
        each = sample.each
        return f"mean {each.mean():.4g}, {each.min():.4g} to {each.max():.4g} ({sample.size:,})"
    most = sorted(sample.counts.items(), key=lambda entry: -entry[1])
    named = [f"{kind} {count / sample.size:.1%}" for kind, count in most[:MOST_KINDS]]
    return ", ".join([*named, "…"] if len(most) > MOST_KINDS else named) + f" ({sample.size:,})"


def _picture(figure: Figure) -> str:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    encoded = base64.b64encode(image.getvalue()).decode()
    return f'<img alt="shares of the bins" style="max-width: 100%" src="data:image/png;base64,{encoded}">'


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>" if lines else ""
