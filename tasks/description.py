"""The description of a run, in Markdown: what a reviewer reads first, so the verdict stands first.

Pure functions from plain data to text. Text that a model wrote stands in fenced blocks longer than any fence in it,
and in table cells with everything escaped that Markdown or HTML would take for its own.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from tasks import cost
from tasks.timing import TimeLine, remark

if TYPE_CHECKING:
    from tasks.step import StepResult

Decision = Literal["promoted", "kept", "refused", "waiting", "trained", "unchanged"]

WAITS = "… Waiting for approval"
"""How the page of a candidate that waits for a person begins, and that of its run."""
_HEADLINES: Mapping[Decision, str] = {
    "promoted": "✔ Promoted",
    "kept": "= Champion kept",
    "refused": "✘ Refused",
    "waiting": WAITS,
    "trained": "○ Trained, not judged",
    "unchanged": "= Nothing changed",
}

LONGEST_SAMPLE = 500
"""Characters shown of a prompt or a completion."""


class IntervalLike(Protocol):
    """An estimate with its interval, e.g. models.evaluation.bootstrap.Interval."""

    @property
    def estimate(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


class CheckLike(Protocol):
    """One check of the gate."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True)
class Sample:
    """A completion worth looking at."""

    prompt: str
    completion: str
    expected: str
    score: float
    """The reward model's score; NaN where there is none."""
    note: str = ""
    """Why it is shown, e.g. "level 4, reward model 2.1, wrong"."""


@dataclass(frozen=True)
class Review:
    """All that the description of a flow run says."""

    decision: Decision
    reason: str
    """One sentence."""
    model: str = ""
    """Registered model's name."""
    version: int | None = None
    compared_with: str = ""
    """What the difference is to: "champion, version 3" or "the base model"."""
    difference: IntervalLike | None = None
    """Candidate minus `compared_with` on the gate's metric."""
    metric: str = "accuracy"
    confidence: float = 0.95
    """Of the difference's interval."""
    gate: Sequence[CheckLike] = ()
    gate_notes: Sequence[str] = ()
    """What a reader must know of the comparison: the smallest difference it could see, the error budget."""
    champion_by_hand: str = ""
    """What the gate says of a champion that a person set, in Markdown."""
    models: Mapping[str, Mapping[str, float | IntervalLike]] = field(default_factory=dict)
    """Model -> metric -> value."""
    worst: Sequence[Sample] = ()
    """Three are shown."""
    steps: Sequence[StepResult] = ()
    time: Sequence[TimeLine] = ()
    """Where the time of the fine-tuning went."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Recipe, commit, data revision and the like, shown on one line each."""


def describe_run(review: Review) -> str:
    """The whole description, sections in the order in which a reviewer asks."""
    sections = [
        unpinned(review),
        verdict(review),
        section("Gate", "\n\n".join([*map(cell, review.gate_notes), gate_table(review.gate)])),
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
    return "\n\n".join(text for text in sections if text) + "\n"


UNPINNED = "not pinned"
"""The fact that no commit holds what was run: where it is there, it stands above everything else."""


def unpinned(review: Review) -> str:
    """The first line of a run that cannot be reproduced, and why; empty for any other."""
    reason = review.facts.get(UNPINNED, "")
    return f"> **Not pinned, so it cannot be reproduced:** {cell(reason)}" if reason else ""


def verdict(review: Review) -> str:
    """The headline, the reason and the difference."""
    name = f": {review.model} version {review.version}" if review.version is not None else ""
    headline = _HEADLINES[review.decision]
    if review.decision == "kept" and not review.compared_with.startswith("champion"):
        headline = "= Not promoted"  # there is no champion to keep
    lines = [f"## {headline}{cell(name)}", cell(review.reason)]
    if review.difference is not None:
        sure = (
            "above zero" if review.difference.low > 0 else "below zero" if review.difference.high < 0 else "around zero"
        )
        lines.append(
            f"**{cell(review.metric)} {signed(review.difference)}** against {cell(review.compared_with)} "
            f"(paired {review.confidence:.0%} interval, {sure})"
        )
    return "\n\n".join(lines)


def gate_table(checks: Sequence[CheckLike]) -> str:
    """One row a check, failed ones first."""
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


def model_table(models: Mapping[str, Mapping[str, float | IntervalLike]]) -> str:
    """Metrics down, models across."""
    metrics = list(dict.fromkeys(metric for values in models.values() for metric in values))
    rows = []
    for metric in metrics:
        values = [models[name].get(metric) for name in models]
        rows.append((cell(metric), *("" if value is None else number(value) for value in values)))
    return table(("metric", *(cell(name) for name in models)), rows)


def step_table(steps: Sequence[StepResult]) -> str:
    """One row a step and the sum below."""
    rows = [
        (cell(step.name), f"{step.seconds:.1f}", "reused" if step.reused else "run", cell(step.headline))
        for step in steps
    ]
    if rows:
        rows.append(("**together**", f"**{sum(step.seconds for step in steps):.1f}**", "", ""))
    return table(("step", "seconds", "reused or run", "key number"), rows)


def cost_lines(steps: Sequence[StepResult]) -> str:
    """What the run took, and what it did not have to take again; empty where there are no steps."""
    spent, saved = cost.of_steps(steps)
    lines = [f"This run took {cost.said(spent)}."] if steps else []
    if any(step.reused for step in steps):
        lines.append(f"Results of earlier runs that it took over had taken {cost.said(saved)}.")
    return " ".join(lines)


def time_table(lines: Sequence[TimeLine]) -> str:
    """One row a stage of the rounds, their sum, and what lies outside them."""
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


def sample(entry: Sample) -> str:
    """A completion with its prompt, what was expected and what it scored."""
    head = f"expected {code(shortened(entry.expected, 120))}"
    if not math.isnan(entry.score):
        head = f"**score {entry.score:.3f}**, {head}"
    if entry.note:
        head += f" ({cell(entry.note)})"
    text = f"{shortened(entry.prompt, LONGEST_SAMPLE)}\n→ {shortened(entry.completion, LONGEST_SAMPLE)}"
    return f"{head}\n\n{fenced(text)}"


def fact(value: str) -> str:
    """A fact: an address as a link, anything else as code."""
    return f"<{value}>" if re.fullmatch(r"https?://[^\s<>]+", value) else code(value)


def how_to_load(review: Review) -> str:
    """Lines to copy."""
    if not review.model or review.version is None:
        return ""
    address = (
        f"models:/{review.model}@champion"
        if review.decision == "promoted"
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
    """A heading with its body, nothing where the body is empty."""
    return f"### {title}\n\n{body}" if body else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of finished cells, nothing where there are no rows."""
    if not rows:
        return ""
    # MLflow draws tables without any space between columns, and none below.
    spaced = [[f"{entry}&emsp;" if entry else "" for entry in line] for line in (head, *rows)]
    lines = [spaced[0], [":---"] * len(head), *spaced[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n&nbsp;"


def number(value: float | IntervalLike) -> str:
    """Four digits; an interval in brackets behind its estimate."""
    if isinstance(value, int | float):
        return f"{value:.4g}"
    return f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"


def signed(value: IntervalLike) -> str:
    """A difference with its interval, signs shown."""
    return f"{value.estimate:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def shortened(text: str, longest: int) -> str:
    """`text`, its middle left out where it is longer: a completion goes wrong at its end as often as at its start."""
    if len(text) <= longest:
        return text
    half = (longest - 30) // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"


def fenced(text: str, language: str = "") -> str:
    """A code block that nothing in `text` can close; control characters are shown as what they are."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text.replace("\r\n", "\n"))
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def code(text: str) -> str:
    """Code inside a line; `text` may hold backticks, its line breaks become spaces."""
    plain = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    ticks = "`" * (longest + 1)
    gap = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{gap}{plain}{gap}{ticks}"


def cell(text: str) -> str:
    """Text inside a line or a table cell, with nothing in it that Markdown or HTML would act on."""
    plain = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", plain)
