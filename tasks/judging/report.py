"""A judgement for readers: as text, as JSON and as one HTML page with a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from models.evaluation.bootstrap import Interval
from models.evaluation.gate.checks import GateCheck
from tasks.judging.answers import AnswerSet
from tasks.judging.measuring import PreferenceFacts, Side
from tasks.judging.verdict import Decision, FormSplit, Judgement, MetricLine
from tasks.pages.html_page import escaped, table, whole_page

WORDS: Mapping[Decision, str] = {"better": "better", "not_shown": "not shown", "refused": "refused"}
"""Decision -> first words of its sentence."""
STATES = {"passed": "passed", "failed": "FAILED", "not_applicable": "not applicable"}
ONLY_LOOK = "no ledger counts this look: the level holds only if these problems are looked at once (--ledger FILE)"


def headline(judgement: Judgement) -> str:
    """Return the decision with its reason in one sentence."""
    difference = f"{judgement.metric} {judgement.verdict.difference:+.3f}"
    failed = [check.name for check in judgement.verdict.checks[1:] if check.failed]
    is_better = not judgement.verdict.checks[0].failed
    if judgement.decision == "better":
        return f"better: {difference}, and every guard holds"
    if judgement.decision == "refused":
        return f"refused: {'better' if is_better else 'not shown to be better'} ({difference}), and {_guards(failed)}"
    return f"not shown to be better: {difference}; every guard holds"


def notes(judgement: Judgement) -> list[str]:
    """Return facts about the comparison, one sentence each."""
    lines = list(judgement.verdict.lines)
    if not judgement.ledger:
        lines[-1] = f"{ONLY_LOOK}; level {judgement.verdict.look.alpha:.2g}"
    else:
        lines.append(f"looks are counted in {judgement.ledger}")
    if judgement.needed:
        needed = ", ".join(
            f"{difference:g}: {'no number suffices' if count is None else f'{count:,}'}"
            for difference, count in judgement.needed.items()
        )
        lines.append(f"problems needed to find a true difference with 80 % power at this look: {needed}")
    if judgement.verdict.difference.high < 0:
        lines.append("the whole interval of the difference is below zero: the candidate is likely worse")
    higher, same, lower = judgement.counts
    lines.append(f"the candidate is higher on {higher:,} problems, equal on {same:,} and lower on {lower:,}")
    if judgement.form is not None:
        lines.append(_form_text(judgement.form))
    if judgement.measured.has_texts and not judgement.measured.in_tokens:
        lines.append("lengths are in characters, because not every answer has its number of tokens")
    for side in (judgement.measured.champion, judgement.measured.candidate):
        if silent := _nothing_marked(side):
            lines.append(silent)
    return [*lines, *judgement.measured.notes]


def as_text(judgement: Judgement) -> str:
    """Render the judgement for a terminal."""
    measured = judgement.measured
    lines = [
        f"champion    {_described(measured.champion)}",
        f"candidate   {_described(measured.candidate)}",
        f"problems    {judgement.problems:,}" + (f", verifier {judgement.verifier}" if judgement.verifier else ""),
        f"verdict     {headline(judgement)}",
        *(f"            {note}" for note in notes(judgement)),
        "",
    ]
    width = max(len(line.name) for line in judgement.metrics)
    lines.append(f"{'metric':<{width}}  {'champion':>22}  {'candidate':>22}  {'difference':>24}")
    lines += [
        f"{line.name:<{width}}  {_cell(line.champion):>22}  {_cell(line.candidate):>22}  "
        f"{_cell(line.difference, '+'):>24}"
        for line in judgement.metrics
    ]
    names = max(len(check.name) for check in judgement.verdict.checks)
    lines += ["", *(_check_line(check, names) for check in judgement.verdict.checks)]
    return "\n".join(lines)


def as_json(judgement: Judgement) -> str:
    """Return the judgement as JSON; numbers that are not finite are null."""
    measured, verdict = judgement.measured, judgement.verdict
    content = {
        "decision": judgement.decision,
        "headline": headline(judgement),
        "metric": judgement.metric,
        "verifier": judgement.verifier or None,
        "problems": judgement.problems,
        "difference": asdict(verdict.difference),
        "confidence": judgement.settings.gate.confidence,
        "detectable": verdict.detectable,
        "needed": {f"{difference:g}": count for difference, count in judgement.needed.items()},
        "higher_equal_lower": list(judgement.counts),
        "look": {**asdict(verdict.look), "left": verdict.look.left, "ledger": judgement.ledger or None},
        "form": None if judgement.form is None else asdict(judgement.form),
        "metrics": [asdict(line) for line in judgement.metrics],
        "checks": [asdict(check) for check in verdict.checks],
        "preferences": None if measured.preferences is None else asdict(measured.preferences),
        "champion": _as_facts(measured.champion),
        "candidate": _as_facts(measured.candidate),
        "notes": notes(judgement),
    }
    return json.dumps(_finite(content), indent=1, ensure_ascii=False) + "\n"


def as_html(judgement: Judgement) -> str:
    """Render one self-contained page: the verdict, a figure of the differences, metrics, checks and notes."""
    measured = judgement.measured
    rows = [
        (line.name, _cell(line.champion), _cell(line.candidate), _cell(line.difference, "+"))
        for line in judgement.metrics
    ]
    checks = [(check.name, STATES[check.state], check.detail) for check in judgement.verdict.checks]
    sources = [
        (role, side.answers.source, side.answers.kind, _samples(side))
        for role, side in (("champion", measured.champion), ("candidate", measured.candidate))
    ]
    body = (
        figure(judgement.metrics)
        + _preferences_table(measured.preferences)
        + "<h2>Metrics</h2>"
        + table(("metric", "champion", "candidate", "difference"), rows)
        + "<h2>Checks</h2>"
        + table(("check", "state", "detail"), checks)
        + "<h2>Notes</h2>"
        + "".join(f"<p>{escaped(note)}</p>" for note in notes(judgement))
        + "<h2>Sources</h2>"
        + table(("role", "source", "kind", "samples"), sources)
    )
    candidate, champion = measured.candidate.answers.source, measured.champion.answers.source
    return whole_page(f"{candidate} against {champion}: {WORDS[judgement.decision]}", headline(judgement), body)


def figure(lines: Sequence[MetricLine]) -> str:
    """Draw the difference of each metric with its interval as an SVG: left of zero the champion is higher."""
    shown = [line for line in lines if math.isfinite(line.difference.low) and math.isfinite(line.difference.high)]
    if not shown:
        return ""
    left, width, step = 260, 560, 34
    widest = max(1e-3, *(abs(end) for line in shown for end in (line.difference.low, line.difference.high))) * 1.1
    height = step * len(shown) + 46

    def x(value: float) -> float:
        return left + width * (value + widest) / (2 * widest)

    parts = [
        f'<svg role="img" viewBox="0 0 {left + width + 20} {height}" width="100%" xmlns="http://www.w3.org/2000/svg">',
        "<title>Candidate minus champion, with intervals</title>",
        f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="8" y2="{height - 34}" stroke="#7b8794" stroke-dasharray="3 3"/>',
    ]
    for place, line in enumerate(shown):
        difference, y = line.difference, 24 + step * place
        colour = "#2b8a3e" if difference.low > 0 else "#c92a2a" if difference.high < 0 else "#52606d"
        parts += [
            f'<text x="{left - 12}" y="{y + 4}" text-anchor="end" font-size="13">{escaped(line.name)}</text>',
            f'<line x1="{x(difference.low):.1f}" x2="{x(difference.high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" '
            'stroke-width="3"/>',
            f'<circle cx="{x(difference.estimate):.1f}" cy="{y}" r="5" fill="{colour}"/>',
        ]
    for value in (-widest / 1.1, 0.0, widest / 1.1):
        parts.append(
            f'<text x="{x(value):.1f}" y="{height - 18}" text-anchor="middle" font-size="12" fill="#52606d">'
            f"{value:+.3f}</text>"
        )
    parts.append(
        f'<text x="{x(0):.1f}" y="{height - 2}" text-anchor="middle" font-size="12" fill="#52606d">'
        "candidate minus champion</text></svg>"
    )
    return "".join(parts)


def _preferences_table(facts: PreferenceFacts | None) -> str:
    """Render the comparisons of a judge or of people with their position bias; empty without comparisons."""
    if facts is None:
        return ""
    bias = "not known" if facts.first_place is None else format(facts.first_place, ".3f")
    row = (facts.source, f"{facts.comparisons:,}", bias, f"{facts.by_order:,}", f"{facts.unread:,}")
    columns = (
        "compared by",
        "comparisons",
        "preferred in the first place",
        "decided by the order",
        "without a verdict",
    )
    return "<h2>Preferences</h2>" + table(columns, [row])


def _guards(failed: Sequence[str]) -> str:
    return f"the guard {failed[0]} failed" if len(failed) == 1 else f"the guards {', '.join(failed)} failed"


def _form_text(form: FormSplit) -> str:
    return (
        f"of the change of {form.strict}, {form.content:+.3f} is content ({form.lenient}) and {form.form:+.3f} is form "
        "(right answers that only the lenient metric accepts)"
    )


def _nothing_marked(side: Side) -> str:
    """Return a hint if the strict metric of a verifier is 0 and the lenient one is not; empty otherwise."""
    strict, lenient = (side.metrics.get(name) for name in ("strict_accuracy", "lenient_accuracy"))
    if strict is None or lenient is None or strict.any() or not lenient.any():
        return ""
    return (
        f"{side.answers.source}: no answer is right for the strict verifier, though some are for the lenient one; "
        "texts that are the answer alone are read by --verifier whole_text"
    )


def _described(side: Side) -> str:
    return f"{side.answers.source} ({side.answers.kind}, {_samples(side)})"


def _samples(side: Side) -> str:
    fewest, most = side.samples
    count = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"{count} sample{'s' if most > 1 else ''} per problem"


def _cell(interval: Interval, sign: str = "") -> str:
    return "not measured" if math.isnan(interval.estimate) else format(interval, f"{sign}.3f")


def _check_line(check: GateCheck, width: int) -> str:
    return f"{check.name:<{width}}  {STATES[check.state]:<14}  {check.detail}"


def _as_facts(side: Side) -> dict[str, Any]:
    answers: AnswerSet = side.answers
    return {
        "source": answers.source,
        "kind": answers.kind,
        "digest": answers.digest,
        "samples": list(side.samples),
        "missing": side.missing,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
