"""Nightly comparison of the champion's answers and inputs with those at the time when the gate judged it.

Its answers and the summary of its problems at that time are stored with the evaluation that its version names. Anything
that cannot be compared is reported and never counted as a change.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.base.errors import UserError
from models.base.sections import Sections, of
from models.datasets.row_diff import same_rows
from models.evaluation.drift import Drift, DriftSettings, drifts
from models.evaluation.flips import flips
from models.evaluation.gate.paired_change import MetricChange
from models.evaluation.gate.since_judged import change_since_judged, is_worse
from models.evaluation.metrics import prompt_values
from models.evaluation.records import PromptRecord
from models.evaluation.samples import Numbers, Sample, from_json
from models.evaluation.table import read_records
from tasks.data.data_difference import PreparedFiles, place_of, prepared_hashes
from tasks.data.input_summary import INPUTS
from tasks.data.versions import DataVersion
from tasks.pages import drift_page, plots
from tasks.pages.description import cell
from tasks.registered.evaluation_difference import SHOWN, read_answers
from tasks.runner.step import StepResult
from tasks.tracking import records, registry, tags
from tasks.tracking.recorded import VersionRecord, of_version, read_text
from tasks.tracking.verdict_text import is_share, points

MEASURED_ALIKE = ("evaluation.temperature", "evaluation.top_p", "evaluation.max_tokens", "rollouts.max_tokens")
"""Settings that must be equal for the metrics of two evaluations to be comparable."""
REWARD_SCORE = "reward_score"
PAGE = "drift/champion.html"
"""Artifact of the nightly run with the page."""


class WatchSections(Sections):
    """The sections of the recipe that decide which changes are reported."""

    drift: DriftSettings
    metric: str = of("gate.metric")


@dataclass(frozen=True)
class NightlyMeasurements:
    """Measurements of one night."""

    evaluation: StepResult
    version: DataVersion
    params: Mapping[str, str]
    """The recipe, key by key."""
    reward_model: str
    """NAME/VERSION of the reward model that scored, empty if there was none."""


@dataclass(frozen=True)
class NightlyResult:
    """Result of one night's comparison for a champion."""

    metric: str
    change: MetricChange | None = None
    """Change of the metric since the champion was judged; None if it could not be compared."""
    problems: int = 0
    """Number of problems compared."""
    drifts: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = ()
    """Comparisons that were not made, or not paired, each with the reason."""

    @property
    def worse(self) -> str:
        """Short description of the deterioration; empty if there is none."""
        if self.change is None or not is_worse(self.change):
            return ""
        how = "the same problems" if self.change.paired else "not paired, the problems are others"
        unit = " points" if is_share(self.metric) else ""
        fell = f"{self.metric.replace('_', ' ')} {points(self.change.change, self.metric)}{unit}"
        return f"{fell} since it was judged ({self.problems} problems, {how})"

    @property
    def drifted(self) -> str:
        """The features that drifted, in a few words; empty if none did."""
        features = [drift for drift in self.drifts if drift.state == "drifted"]
        return ", ".join(f"{drift.name.replace('_', ' ')} (PSI {drift.index:.2f})" for drift in features)

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the nightly run."""
        numbers = {f"drift/{drift.name}": drift.index for drift in self.drifts}
        numbers |= {f"drift/{drift.name}_p": drift.p_value for drift in self.drifts}
        if self.change is not None:
            change, name = self.change.change, f"since_judged/{self.metric}"
            numbers |= {name: change.estimate, f"{name}_low": change.low, f"{name}_high": change.high}
        return numbers


def watch_champion(
    run_id: str, champion: registry.VersionInfo, recipe: WatchSections, tonight: NightlyMeasurements, root: Path
) -> NightlyResult:
    """Compare tonight's evaluation of the champion with the one from when it was judged; log page and metrics.

    Args:
        run_id: the nightly run.
        champion: the version that was evaluated.
        root: the repository, whose DVC finds the older rows.
    """
    try:
        result = compared(of_version(champion), recipe, tonight, root)
    except UserError as error:
        result = NightlyResult(recipe.metric, notes=(str(error),))
    records.log_metrics(run_id, result.metrics)
    figure = plots.drift(result.drifts) if result.drifts else None
    if figure is not None:
        records.log_figure(run_id, "plots/drift.png", figure)
    title = f"{champion.name} version {champion.version} since it was judged"
    records.log_text(run_id, PAGE, drift_page.page(title, result, recipe.drift, figure))
    return result


def lines(result: NightlyResult) -> str:
    """Return the result of a night in Markdown, for the run's description."""
    entries = [
        f"✘ worse: {result.worse}" if result.worse else "",
        f"✘ drifted: {result.drifted}" if result.drifted else "",
        *result.notes,
    ]
    return "\n".join(f"- {cell(line)}" for line in [*filter(None, entries), f"the page is the artifact {PAGE}"])


def compared(before: VersionRecord, recipe: WatchSections, tonight: NightlyMeasurements, root: Path) -> NightlyResult:
    """Compare a night with the recorded evaluation of a champion.

    Raises:
        UserError: the recorded evaluation is broken.
    """
    judged = read_answers(before)
    if judged is None:
        return NightlyResult(recipe.metric, notes=("what it answered when it was judged is not on record",))
    now = read_records(Path(tonight.evaluation.folder) / "records.parquet")
    notes: list[str] = []
    change, problems = _change(before, judged, now, recipe, tonight, root, notes)
    old = _inputs(read_text(before.evaluation, f"evaluation/{INPUTS}"), judged)
    new = _inputs((Path(tonight.evaluation.folder) / INPUTS).read_text(encoding="utf-8"), now)
    if len(old) <= 1:
        notes.append("what its inputs were like is not on record: it was judged before that was kept")
    if before.facts.get(tags.REWARD_MODEL_VERSION, "") != tonight.reward_model:
        old.pop(REWARD_SCORE, None)
        notes.append("the reward model that it learned from did not score tonight: no reward score is compared")
    return NightlyResult(recipe.metric, change, problems, tuple(drifts(old, new, recipe.drift)), tuple(notes))


def _change(
    before: VersionRecord,
    judged: Sequence[PromptRecord],
    now: Sequence[PromptRecord],
    recipe: WatchSections,
    tonight: NightlyMeasurements,
    root: Path,
    notes: list[str],
) -> tuple[MetricChange | None, int]:
    """Return the change of the metric (None if it cannot be compared) and the number of compared problems."""
    differing = [key for key in MEASURED_ALIKE if before.params.get(key) != tonight.params.get(key)]
    if differing:
        notes.append(f"its answers are not compared: {', '.join(differing)} is another than when it was judged")
        return None, 0
    _, pairs = flips(judged, now, _same_problems(before, tonight.version, root))
    try:
        change = change_since_judged(recipe.metric, judged, now, pairs, recipe.drift.confidence)
    except UserError as error:  # such as pass_at_8 of an evaluation with four samples
        notes.append(f"its answers are not compared: {error}")
        return None, 0
    if change is None:
        notes.append("there are too few problems to compare its answers")
        return None, 0
    if not change.paired:
        notes.append(f"{len(pairs)} of {len(now)} problems are those that it was judged on: the interval is not paired")
    elif len(pairs) < max(len(judged), len(now)):
        notes.append(f"compared on the {len(pairs)} problems that both evaluations have")
    return change, len(pairs) if change.paired else len(now)


def _same_problems(before: VersionRecord, version: DataVersion, root: Path) -> dict[str, str] | None:
    """Map newer id to older id of the held-out problems with equal content and answer; None if all are equal."""
    places = {place_of(path): digest for path, digest in version.files.items() if path.endswith(".parquet")}
    hashes = {place: digest for place, digest in places.items() if place is not None}
    older = prepared_hashes(before.data)
    if older.get(SHOWN) == hashes.get(SHOWN):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        files = [
            PreparedFiles(root, Path(scratch) / name, digests) for name, digests in (("old", older), ("new", hashes))
        ]
        if not all(side.has(SHOWN) for side in files):
            return {}
        old, new = (side.marks(SHOWN) for side in files)
    return same_rows(old, new)


def _inputs(text: str, answers: Sequence[PromptRecord]) -> dict[str, Sample]:
    """Map feature to sample: the recorded input features, and the mean reward score of each prompt's samples.

    The mean is used because the samples of a prompt are not independent.
    """
    scores = Numbers.of(prompt_values(answers, REWARD_SCORE))
    return {**(from_json(text) if text else {}), REWARD_SCORE: scores}
