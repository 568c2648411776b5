"""Comparison of a version that was trained again with the registered one: weights, files, metrics, surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.base.file_hash import sha256_of
from models.policies.weight_gap import TensorGap, tensor_gaps, tensor_hashes, whole_hash
from models.recipes.load import plain
from models.recipes.schema import Recipe
from tasks.host import clock
from tasks.host.machine import BITS, MACHINE, PACKAGES, machine, packages, read_machine, read_packages
from tasks.pages.registered_page import annotate
from tasks.registered.difference import SettingDifference, differing
from tasks.tracking import audit, registry, runs, tags
from tasks.tracking.recorded import VersionRecord, read_text

EVALUATED = "eval/"
"""Prefix of the metrics that are compared: those of the evaluation, which do not depend on time."""
TOLERANCE = 1e-6
"""Largest allowed difference of a metric, absolute."""


@dataclass(frozen=True)
class MetricGap:
    """A metric that is not within the tolerance."""

    name: str
    before: float | None
    """Recorded value; None if it is missing."""
    after: float | None
    """Value when made again; None if it is missing."""


@dataclass(frozen=True)
class Surroundings:
    """Packages and machine of the recorded run and of this process; empty if they were not recorded."""

    packages_then: Mapping[str, str]
    machine_then: Mapping[str, str]
    packages_now: Mapping[str, str]
    machine_now: Mapping[str, str]

    @property
    def packages(self) -> tuple[SettingDifference, ...]:
        """Packages that differ."""
        return differing(self.packages_then, self.packages_now) if self.packages_then else ()

    @property
    def machine(self) -> tuple[SettingDifference, ...]:
        """Facts of the machine that differ."""
        return differing(self.machine_then, self.machine_now) if self.machine_then else ()

    @property
    def deciding(self) -> tuple[SettingDifference, ...]:
        """Facts of the machine that differ and can change bits."""
        return tuple(entry for entry in self.machine if entry.name in BITS or entry.name.startswith("$"))


@dataclass(frozen=True)
class Reproduction:
    """Comparison of a version that was made again with the recorded one."""

    version: str
    commit: str
    data: str
    """DVC's hash of the prepared data."""
    tensors: int
    recorded_sha256: str
    """Hash over the tensors of the version, by name, type, shape and bytes."""
    made_sha256: str
    gaps: tuple[TensorGap, ...]
    """Tensors that differ, the greatest gap first."""
    files: tuple[str, ...]
    """Other files of the model folder that differ, or that only one of the two has."""
    metrics: tuple[MetricGap, ...]
    compared: int
    """Number of metrics that were compared."""
    tolerance: float
    recipe: tuple[SettingDifference, ...]
    packages: tuple[SettingDifference, ...]
    machine: tuple[SettingDifference, ...]
    machine_now: str
    """Processor or device that it was made on."""
    notes: tuple[str, ...]

    @property
    def same_weights(self) -> bool:
        """Whether every bit of every tensor is the same."""
        return not self.gaps

    @property
    def identical(self) -> bool:
        """Whether the weights and the files next to them are bitwise equal, and the metrics within tolerance."""
        return not (self.gaps or self.files or self.metrics)


def reproduction(
    record: VersionRecord,
    recipe: Recipe,
    data: str,
    original: Path,
    reproduced: Path,
    new_metrics: Mapping[str, float],
    surroundings: Surroundings,
    tolerance: float,
) -> Reproduction:
    """Compare the model folder and metrics that were made again with those of the version.

    Args:
        record: the record of the version.
        recipe: as it was read again.
        data: hash of the prepared data.
        original: the version's model folder.
        reproduced: the model folder that was made again.
        new_metrics: metrics of the evaluation of `reproduced`.
        surroundings: packages and machine, then and now.
        tolerance: largest allowed difference of a metric.
    """
    old_hashes, new_hashes = tensor_hashes(original), tensor_hashes(reproduced)
    gaps = tensor_gaps(original, reproduced) if old_hashes != new_hashes else []
    old_files, new_files = _other_files(original), _other_files(reproduced)
    before, after = _evaluated(record.metrics), _evaluated(new_metrics)
    metric_gaps = [
        MetricGap(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if name not in before or name not in after or not abs(after[name] - before[name]) <= tolerance
    ]
    notes = [] if before else ["no evaluation of it is on record, so metrics are not compared"]
    notes += [
        f"the {what} of its run is not on record"
        for what, facts in (("list of packages", surroundings.packages_then), ("machine", surroundings.machine_then))
        if not facts
    ]
    return Reproduction(
        version=record.label,
        commit=record.commit,
        data=data,
        tensors=len(new_hashes),
        recorded_sha256=whole_hash(old_hashes),
        made_sha256=whole_hash(new_hashes),
        gaps=tuple(gaps),
        files=tuple(
            name for name in sorted(old_files.keys() | new_files.keys()) if old_files.get(name) != new_files.get(name)
        ),
        metrics=tuple(metric_gaps) if before else (),
        compared=len(before),
        tolerance=tolerance,
        recipe=differing(record.params, runs.param_texts(plain(recipe))),
        packages=surroundings.packages,
        machine=surroundings.machine,
        machine_now=surroundings.machine_now.get("cpu", ""),
        notes=tuple(notes),
    )


def surroundings_of(record: VersionRecord, root: Path) -> Surroundings:
    """Return packages and machine of the run that made a version, and those of this process."""
    return Surroundings(
        packages_then=read_packages(read_text(record.trained_in, PACKAGES)),
        machine_then=read_machine(read_text(record.trained_in, MACHINE)),
        packages_now=packages(),
        machine_now=machine(root),
    )


def _evaluated(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith(EVALUATED)}


def _other_files(folder: Path) -> dict[str, str]:
    """Return path below a model folder -> hash, of all files but the weights."""
    return {
        file.relative_to(folder).as_posix(): sha256_of(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".safetensors" and file.name != "model.safetensors.index.json"
    }


def record_reproduction(record: VersionRecord, comparison: Reproduction) -> str:
    """Record on the version and its page whether it was reproduced identically; return that sentence.

    Raises:
        UserError: the registry does not allow this user to write.
    """
    assert record.version is not None, "only versions are made again"
    timestamp = clock.now().strftime("%Y-%m-%d %H:%M UTC")
    processor = comparison.machine_now or "an unnamed processor"
    outcome = (
        f"identical to the bit, {comparison.tensors} tensors, "
        f"{comparison.compared} metrics within {comparison.tolerance:g}"
        if comparison.identical
        else "differs: "
        + ", ".join(
            part
            for part, count in (
                (f"{len(comparison.gaps)} of {comparison.tensors} tensors", len(comparison.gaps)),
                (f"{len(comparison.files)} other files", len(comparison.files)),
                (
                    f"{len(comparison.metrics)} of {comparison.compared} metrics not within {comparison.tolerance:g}",
                    len(comparison.metrics),
                ),
            )
            if count
        )
    )
    sentence = f"{outcome} ({timestamp}, {processor}, by {audit.person()})"
    info = registry.version_info(record.version.name, record.version.version)
    annotate(info, {tags.REPRODUCED: sentence})
    return sentence
