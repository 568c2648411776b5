"""`python -m benchmarks.reproduced`: run the experiments without a record, by both sides, and write docs/reproduced.md.

    rewardflow base add smollm2-135m-instruct
    python -m benchmarks.reproduced --data DATA                  # everything; an interrupted run begins again
    python -m benchmarks.reproduced --data DATA --only gsm8k --sides ours --seeds 1
    python -m benchmarks.reproduced --page                       # only the page, from the records

DATA holds gsm8k_train.jsonl, gsm8k_test.jsonl and hh_harmless_pairs.jsonl. The runs are made one after the other. Our
run of seed 0 is made twice: the second one is killed in the middle, resumed, and its weights are compared. TRL is the
extra `bench`; without it the side is left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.league.records import commit
from benchmarks.reproduced import ours, theirs
from benchmarks.reproduced.experiments import EXPERIMENTS, Experiment, read_rows, write_inputs
from benchmarks.reproduced.measuring import measure
from benchmarks.reproduced.ours import BASE
from benchmarks.reproduced.page import PAGE, page
from benchmarks.reproduced.records import RESULTS, ReproductionRecord, Side, read_all, record_of, write
from benchmarks.shared.machine import describe
from benchmarks.shared.settings import at_least_one, has_trl
from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.policies.base_models.store import folder_of
from models.recipes.load import plain

SIDES: tuple[Side, ...] = ("ours", "trl")
SECTIONS = ("policy", "warm_start", "reward_model", "rollouts", "objective", "schedule")
"""Sections of the recipe that a record keeps."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and write the page. Returns 1 if a run failed."""
    options = _parser().parse_args(arguments)
    try:
        if not options.page:
            _train_missing(options)
        write_file(PAGE, page(read_all(options.results)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{PAGE}: written")
    return 0


def _train_missing(options: argparse.Namespace) -> None:
    """Run every experiment, side and seed that has no record."""
    if options.data is None:
        raise UserError("--data: missing; it names the folder with gsm8k_train.jsonl and the other data sets")
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    sides = options.sides or [side for side in SIDES if side == "ours" or has_trl()]
    if "trl" in sides and not has_trl():
        raise UserError("--sides trl: TRL is not installed; it is the extra `bench`")
    for seed in range(options.seeds):
        for name in options.only or EXPERIMENTS:
            for side in sides:
                record = record_of(name, side, seed, options.results)
                if record is None:
                    print(f"== {name}, {side}, seed {seed}", flush=True)
                    record = _run(EXPERIMENTS[name], side, seed, options)
                    _store(record, options.results)
                if side == "ours" and seed == 0 and not options.no_kill and not record.resumed_weights:
                    print(f"== {name}, {side}, seed {seed}, killed and resumed", flush=True)
                    _store(_resumed(EXPERIMENTS[name], record, options), options.results)


def _store(record: ReproductionRecord, results: Path) -> None:
    """Write a record, and the page from all records."""
    write(record, results)
    write_file(PAGE, page(read_all(results)))


def _run(experiment: Experiment, side: Side, seed: int, options: argparse.Namespace) -> ReproductionRecord:
    """Train one side of an experiment and measure its models."""
    with tempfile.TemporaryDirectory(prefix="reproduced-", dir=options.work) as folder:
        return _measured(experiment, side, seed, options.data, Path(folder))


def _resumed(experiment: Experiment, record: ReproductionRecord, options: argparse.Namespace) -> ReproductionRecord:
    """Return the record with the weights of the same run when it is killed in the middle and resumed."""
    with tempfile.TemporaryDirectory(prefix="reproduced-", dir=options.work) as folder:
        files = write_inputs(experiment, options.data, Path(folder) / "data")
        again = ours.train(experiment, record.seed, files, Path(folder) / "home", kill=True)
    return replace(record, resumed_weights=again.weights)


def _measured(experiment: Experiment, side: Side, seed: int, data: Path, place: Path) -> ReproductionRecord:
    files = write_inputs(experiment, data, place / "data")
    rows = read_rows(files[1])
    base = folder_of(BASE)
    if side == "ours":
        made = ours.train(experiment, seed, files, place / "home")
    else:
        made = theirs.train(experiment, seed, files, base, place / "trl")
    recipe = plain(experiment.load())
    return ReproductionRecord(
        experiment=experiment.name,
        side=side,
        seed=seed,
        settings={section: recipe[section] for section in SECTIONS},
        seconds=made.seconds,
        peak_gib=made.peak_gib,
        measured={stage: measure(experiment, made.folders[stage], rows, base) for stage in experiment.stages},
        curve=made.curve,
        weights=made.weights,
        machine=describe(),
        commit=commit(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduced",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Any = parser.add_argument
    add("--data", type=Path, help="Folder with the data sets.")
    add("--only", nargs="+", choices=EXPERIMENTS, help="Experiments to run (all).")
    add("--sides", nargs="+", choices=SIDES, help="Sides to run (both, where TRL is installed).")
    add("--seeds", type=at_least_one, default=3, help="Seeds of each (3).")
    add("--no-kill", action="store_true", help="Leave out the run that is killed and resumed.")
    add("--page", action="store_true", help="Only write the page from the records.")
    add("--results", type=Path, default=RESULTS, help="File of the records.")
    add("--work", type=Path, help="Folder for the runs; the system's temporary folder if left out.")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
