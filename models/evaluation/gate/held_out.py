"""Held-out sets in addition to the gate's problems: abilities that a candidate must not lose, one guard per set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.base.bounds import Positive
from models.base.errors import UserError
from models.datasets.settings import DataSettings, Paths
from models.evaluation.gate.checks import GateCheck, blind_control, share_kept
from models.evaluation.metrics import UNBOUNDED, defined_on, known_metric, prompt_values, samples_needed
from models.evaluation.other_images import ShownImages
from models.evaluation.records import PromptRecord, aligned
from models.evaluation.wrapped import Wrapping


class HeldOutSettings(BaseModel):
    """A held-out set, under `gate.held_out.NAME`: its rows, and the allowed loss of a metric on them.

    Without a path, it is the gate split of the built-in data set NAME.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    path: Paths | None = None
    """File, folder or list of files: .jsonl, .json, .csv or .parquet. Relative to the working directory."""
    format: Literal["problems", "gsm8k"] | None = None
    """Format of the rows in the files."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Field of the format -> name of the user's column, if they differ, such as {prompt: question}."""
    ignore: tuple[str, ...] = ()
    """Columns, and keys of messages, that are ignored on purpose."""
    limit: Positive | None = None
    """Largest number of rows to read."""
    metric: str = "sampled_accuracy"
    """Any per-prompt metric that is a share: sampled_accuracy, greedy_accuracy, pass_at_4..."""
    problems: Positive = 200
    """Problems of the set, evenly spaced over it; the same for every model."""
    samples: Positive = 4
    """Completions per problem, drawn as in the evaluation."""
    built_in: str | None = None
    """Built-in data set, if the set has another name than it; null: the built-in data set NAME, without a path."""
    wrap: Wrapping | None = None
    """Rewriting of the prompts as code; null: the prompts of the rows. With it, a set may have the rows of the recipe's
    own data."""
    images: ShownImages = "own"
    """Pictures that the prompts show. another and blank make the set a blind control on the gate's own problems and
    number of samples: the candidate's gain with their pictures must exceed its gain with these, by an interval."""
    margin: float = Field(default=0.05, ge=0.0)
    """Largest allowed fall of the metric; not used by a blind control."""

    @model_validator(mode="after")
    def _has_files_or_none(self) -> HeldOutSettings:
        if self.path is not None and self.format is None:
            raise ValueError("format: a held-out set with a path needs a format")
        if self.path is None and (self.format or self.columns or self.limit):
            raise ValueError("format, columns, limit: only with a path; without one the set is built in")
        if self.path is not None and self.built_in is not None:
            raise ValueError("built_in: a set with a path has rows of its own; leave one of them out")
        if self.is_control and (self.path is not None or self.built_in is not None):
            raise ValueError(f"images: {self.images} is a control on the gate's problems; leave path and built_in out")
        return self

    @model_validator(mode="after")
    def _can_be_measured(self) -> HeldOutSettings:
        if "split" in self.columns:
            raise ValueError("columns: a held-out set has no split, all of its rows are held out")
        if not known_metric(self.metric):
            raise ValueError(f"metric: unknown metric {self.metric!r}")
        if self.metric in UNBOUNDED:
            raise ValueError(f"metric: {self.metric} is not a share between 0 and 1")
        if samples_needed(self.metric) > self.samples:
            raise ValueError(f"samples is {self.samples}, but {self.metric} needs {samples_needed(self.metric)}")
        return self

    @property
    def is_control(self) -> bool:
        """Whether the set is a blind control."""
        return self.images != "own"

    def data(self, name: str) -> DataSettings:
        """Return the `data:` section of the data set `name`; all rows of files belong to the gate split."""
        if self.path is None:
            return DataSettings(name=self.built_in or name)
        return DataSettings(
            name=name,
            path=self.path,
            format=self.format,
            columns=self.columns,
            ignore=self.ignore,
            limit=self.limit,
            validation_share=0.0,
            gate_share=1.0,
        )


@dataclass(frozen=True)
class HeldOutAnswers:
    """Evaluations of policies on the problems of one held-out set."""

    candidate: Sequence[PromptRecord]
    baseline: Sequence[PromptRecord]
    anchor: Sequence[PromptRecord] | None = None
    """None without a separate anchor."""


Sides = tuple[Sequence[PromptRecord], Sequence[PromptRecord]]
"""Evaluations of a candidate and of the policy that it is compared with."""


def held_out_checks(
    sets: Mapping[str, HeldOutSettings],
    answers: Mapping[str, HeldOutAnswers],
    confidence: float,
    anchored: bool,
    own: HeldOutAnswers | None = None,
) -> tuple[list[GateCheck], list[GateCheck]]:
    """Return the guards of the held-out sets, against the baseline and against the anchor.

    Args:
        sets: name -> settings, all that the recipe names.
        answers: name -> evaluations; a set without them fails.
        confidence: confidence of the bounds, one-sided.
        anchored: whether there is an anchor in addition to the baseline, so that each set needs its evaluation as well.
        own: evaluations on the gate's problems, which a blind control is compared with.

    Raises:
        UserError: two policies were not measured on the same prompts, or a metric is defined on none of them.
    """
    against_baseline: list[GateCheck] = []
    against_anchor: list[GateCheck] = []
    for name, settings in sets.items():
        evaluations, title = answers.get(name), f"held_out_{name}"
        sides = _sides(evaluations, "baseline"), _sides(own, "baseline")
        against_baseline.append(_check(title, name, settings, *sides, confidence, "baseline"))
        if anchored:
            sides = _sides(evaluations, "anchor"), _sides(own, "anchor")
            against_anchor.append(_check(f"{title}_anchor", name, settings, *sides, confidence, "anchor"))
    return against_baseline, against_anchor


def _sides(answers: HeldOutAnswers | None, other: Literal["baseline", "anchor"]) -> Sides:
    """Return the evaluations of the candidate and of another policy; empty if there are none."""
    if answers is None:
        return (), ()
    return answers.candidate, (answers.baseline if other == "baseline" else answers.anchor) or ()


def _check(
    title: str, name: str, settings: HeldOutSettings, on_set: Sides, on_gate: Sides, confidence: float, other: str
) -> GateCheck:
    """Check one set against one other policy.

    Args:
        title: name of the check.
        name: name of the set.
        settings: settings of the set.
        on_set: evaluations of the candidate and of the other policy on the set.
        on_gate: their evaluations on the gate's problems.
        confidence: confidence of the bound, one-sided.
        other: name of the other policy.
    """
    if not all(on_set):
        missing = f"the {other}" if on_set[0] else "the candidate"
        return GateCheck(title, "failed", math.nan, -settings.margin, f"{missing} was not measured on {name}")
    new, old = aligned(*on_set)
    if not defined_on(new, settings.metric).any():
        raise UserError(f"gate.held_out.{name}.metric: {settings.metric} is defined on none of the {len(new)} prompts")
    left, right = prompt_values(new, settings.metric), prompt_values(old, settings.metric)
    if not settings.is_control:
        what = f"{settings.metric} on {name}"
        return share_kept(title, what, left, right, settings.margin, confidence, f"the {other}")
    seen = [{record.id: record for record in side} for side in on_gate]
    unknown = [record.id for record in new if not all(record.id in side for side in seen)]
    if unknown:
        raise UserError(f"gate.held_out.{name}: problem {unknown[0]} is not among those of the gate")
    looked = [prompt_values([side[record.id] for record in new], settings.metric) for side in seen]
    return blind_control(title, looked[0] - looked[1], left - right, confidence, f"the {other}")
