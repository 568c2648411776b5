"""The description of a run, in Markdown. A reviewer reads it first, so it begins with the verdict.

Pure functions from plain data to text. Text that a model wrote is put into fenced blocks longer than any fence in it,
and into table cells with all Markdown and HTML characters escaped.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from models.evaluation.bootstrap import Interval
from tasks.pages import cost
from tasks.pages.timing import TimeLine, remark
from tasks.tracking.verdict_record import HandJudgement, VerdictRecord
from tasks.tracking.verdict_text import (
    OUTCOMES,
    Outcome,
    baseline_text,
    hand_text,
    headline,
    notes,
    reason_text,
    ruling_text,
)

if TYPE_CHECKING:
    from tasks.runner.step import StepResult

LONGEST_SAMPLE = 500
"""Maximum number of characters that are shown of a prompt or a completion."""


class CheckLike(Protocol):
    """One check of the gate."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True)
class ExampleCompletion:
    """A completion that the description shows as an example."""

    prompt: str
    completion: str
    expected: str
    score: float
    """The reward model's score; NaN if there is none."""
    note: str = ""
    """Why it is shown, e.g. "level 4, reward model 2.1, wrong"."""


@dataclass(frozen=True)
class RunDescription:
    """The contents of a flow run's description."""

    outcome: Outcome
    reason: str = ""
    """Reason why this run made no decision; unused if there is a verdict, which has a reason of its own."""
    model: str = ""
    """Registered model's name."""
    version: int | None = None
    verdict: VerdictRecord | None = None
    """The gate's verdict of this run, None if there was none."""
    champion_by_hand: str = ""
    """The gate's judgement of a champion that a person set, in Markdown."""
    models: Mapping[str, Mapping[str, float | Interval]] = field(default_factory=dict)
    """Model -> metric -> value."""
    worst: Sequence[ExampleCompletion] = ()
    """Worst completions; the first three are shown."""
    steps: Sequence[StepResult] = ()
    time: Sequence[TimeLine] = ()
    """Time of the fine-tuning by stage."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Recipe, commit, data revision and the like, shown on one line each."""


def describe_run(review: RunDescription) -> str:
    """Render the whole description of a run in Markdown: the verdict, then the sections of `describe_below`."""
    head = verdict(review.outcome, review.model, review.version, review.verdict, review.reason)
    parts = [unpinned(review.facts.get(UNPINNED, "")), head, describe_below(review)]
    return "\n\n".join(filter(None, parts)) + "\n"


def describe_below(review: RunDescription) -> str:
    """Render the part below the verdict, which does not change when a person approves or rejects the candidate."""
    record = review.verdict
    sections = [
        section("Gate", comparison(record) if record is not None else ""),
        section("The champion was set by hand", review.champion_by_hand),
        section("Models", model_table(review.models)),
        section("Three worst samples", "\n\n".join(sample(entry) for entry in list(review.worst)[:3])),
        section("Steps", "\n\n".join(filter(None, [step_table(review.steps), cost_lines(review.steps)]))),
        section("Where the time went", time_table(review.time)),
        section(
            "Where it comes from", "\n".join(f"- {cell(key)}: {fact(value)}" for key, value in review.facts.items())
        ),
        section("Load it", how_to_load(review)),
    ]
    return "\n\n".join(filter(None, sections))


UNPINNED = "not pinned"
"""Key of the fact that no commit contains what was run; it is shown above everything else."""


def unpinned(reason: str) -> str:
    """Render the first line of a run that cannot be reproduced, from the reason; empty for any other run."""
    return f"> **Not pinned, so it cannot be reproduced:** {cell(reason)}" if reason else ""


def verdict(
    outcome: Outcome, model: str, version: int | None, record: VerdictRecord | None = None, reason: str = ""
) -> str:
    """Render the verdict: headline, a person's ruling, reason, and difference with its interval.

    Args:
        record: the gate's verdict, if one was reached.
        reason: why there is none.
    """
    name = f": {model} version {version}" if version is not None else ""
    if record is None:
        return "\n\n".join([f"## {OUTCOMES[outcome].headline}{cell(name)}", cell(reason)])
    lines = [f"## {headline(record)}{cell(name)}", cell(reason_text(record))]
    if record.ruling is not None:
        lines.insert(0, cell(ruling_text(record.ruling)))
    if record.difference is not None:
        side = "above" if record.difference.low > 0 else "below" if record.difference.high < 0 else "around"
        lines.append(
            f"**{cell(record.metric)} {record.difference:+.3f}** against {cell(baseline_text(record.champion))} "
            f"(paired {record.confidence:.0%} interval, {side} zero)"
        )
    return "\n\n".join(lines)


def hand_page(judgement: HandJudgement) -> str:
    """Render the gate's judgement of a champion that a person set by hand."""
    record = judgement.verdict
    compared = comparison(record) if record is not None else ""
    return "\n\n".join(filter(None, [cell(hand_text(judgement)), compared]))


def comparison(record: VerdictRecord) -> str:
    """Render the notes and the checks of a verdict."""
    return "\n\n".join(filter(None, [*map(cell, notes(record)), gate_table(record.checks)]))


def gate_table(checks: Sequence[CheckLike]) -> str:
    """Render a table of the gate's checks, failed ones first."""
    marks = {"failed": "✘", "passed": "✔", "not_applicable": "–"}
    rows = [
        (
            marks[check.state],
            cell(check.name),
            cell(f"not applicable: {check.detail}" if check.state == "not_applicable" else check.detail),
        )
        for check in sorted(checks, key=lambda check: list(marks).index(check.state))
    ]
    return table(("", "check", "numbers"), rows)


def model_table(models: Mapping[str, Mapping[str, float | Interval]]) -> str:
    """Render a table with metrics as rows and models as columns."""
    metrics = list(dict.fromkeys(metric for values in models.values() for metric in values))
    rows = []
    for metric in metrics:
        values = [models[name].get(metric) for name in models]
        rows.append((cell(metric), *("" if value is None else number(value) for value in values)))
    return table(("metric", *(cell(name) for name in models)), rows)


def step_table(steps: Sequence[StepResult]) -> str:
    """Render a table of the steps, with their total time in the last row."""
    rows = [
        (cell(step.name), f"{step.seconds:.1f}", "reused" if step.reused else "run", cell(step.headline))
        for step in steps
    ]
    if rows:
        rows.append(("**together**", f"**{sum(step.seconds for step in steps):.1f}**", "", ""))
    return table(("step", "seconds", "reused or run", "key number"), rows)


def cost_lines(steps: Sequence[StepResult]) -> str:
    """Return the cost of the run, and the earlier cost of the results that it reused; empty without steps."""
    spent, saved = cost.of_steps(steps)
    lines = [f"This run took {cost.cost_text(spent)}."] if steps else []
    if any(step.reused for step in steps):
        lines.append(f"Results of earlier runs that it took over had taken {cost.cost_text(saved)}.")
    return " ".join(lines)


def time_table(lines: Sequence[TimeLine]) -> str:
    """Render a table of the time by stage of the rounds, their sum, and the time outside of the rounds."""
    rows = [
        (
            cell(line.stage),
            f"{line.seconds:.1f}",
            "" if line.share is None else f"{line.share:.1%}",
            "" if line.tokens_per_second is None else f"{line.tokens_per_second:,.0f}",
            cell(remark(line)),
        )
        for line in lines
    ]
    return table(("stage", "seconds", "share", "tokens a second", ""), rows)


def sample(entry: ExampleCompletion) -> str:
    """Render a completion with its prompt, the expected answer and its score."""
    head = f"expected {code(shortened(entry.expected, 120))}"
    if not math.isnan(entry.score):
        head = f"**score {entry.score:.3f}**, {head}"
    if entry.note:
        head += f" ({cell(entry.note)})"
    text = f"{shortened(entry.prompt, LONGEST_SAMPLE)}\n→ {shortened(entry.completion, LONGEST_SAMPLE)}"
    return f"{head}\n\n{fenced(text)}"


def fact(value: str) -> str:
    """Format a fact: an address as a link, anything else as code."""
    return f"<{value}>" if re.fullmatch(r"https?://[^\s<>]+", value) else code(value)


def how_to_load(review: RunDescription) -> str:
    """Render Python code that loads the model; empty if no version was registered."""
    if not review.model or review.version is None:
        return ""
    address = (
        f"models:/{review.model}@champion"
        if review.outcome == "promoted"
        else f"models:/{review.model}/{review.version}"
    )
    return fenced(
        "# MLFLOW_TRACKING_URI names the server, or sqlite:////absolute/path/.rewardflow/mlflow.db\n"
        f'import mlflow\nmlflow.transformers.load_model("{address}")   # a transformers pipeline\n\n'
        f'folder = mlflow.artifacts.download_artifacts("{address}/model")\n'
        "transformers.AutoModelForCausalLM.from_pretrained(folder)\nvllm.LLM(folder)",
        "python",
    )


def section(title: str, body: str) -> str:
    """Render a heading with its body; empty if the body is empty."""
    return f"### {title}\n\n{body}" if body else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table of formatted cells; empty without rows."""
    if not rows:
        return ""
    # MLflow draws tables without any space between columns, and none below.
    spaced = [[f"{entry}&emsp;" if entry else "" for entry in line] for line in (head, *rows)]
    lines = [spaced[0], [":---"] * len(head), *spaced[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n&nbsp;"


def number(value: float | Interval) -> str:
    """Write a number with four digits, an interval with three decimals."""
    return f"{value:.4g}" if isinstance(value, int | float) else f"{value:.3f}"


def shortened(text: str, longest: int) -> str:
    """Return `text` with its middle left out if it is too long, as errors are at the end as often as at the start."""
    if len(text) <= longest:
        return text
    half = (longest - 30) // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"


def fenced(text: str, language: str = "") -> str:
    """Render a code block that nothing in `text` can close; control characters are shown as escapes."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text.replace("\r\n", "\n"))
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def code(text: str) -> str:
    """Render inline code; `text` may contain backticks, its line breaks become spaces."""
    plain = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    ticks = "`" * (longest + 1)
    gap = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{gap}{plain}{gap}{ticks}"


def cell(text: str) -> str:
    """Escape text for a line or a table cell, so that nothing in it acts as Markdown or HTML."""
    plain = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", plain)
