"""`python -m benchmarks.curves.main_curve`: a recipe at full length, from its start, on a CPU or a CUDA device.

The recipe `arithmetic_long`, a longer `make run`, or another, with models/ alone: data and warm start are made, the
reward model is fitted, the recipe's rounds run with the transformers engine in the recipe's precision, and the policy
is measured before and after on held-out problems by the recipe's evaluation. It imports nothing above models/. The file
is written after every stage, the first round and every tenth, or every round of a given base, so that an interrupted
run leaves its results so far.

A recipe with a `policy.base` begins with the base that is installed, or with that of `--base`: a wheel or GGUF file, or
the parts of one. If the recipe also has a warm start, the base is measured before it, too. Data of a user's files are
prepared by the recipe's settings and not validated: rows that share n-grams with held-out ones stay.

`--rounds` makes it shorter; `--minutes` bounds the whole, from the end of the imports: the round in which they end is
the last, and then the policy is measured. At least one round runs. The other device's curve is printed for comparison,
from its file in the same folder or else from benchmarks/results.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from benchmarks.claims.pair_reward_model import fit_to_pairs
from benchmarks.curves.held_out import held_out, measuring_engine, rule_of
from benchmarks.curves.records import EVERY, Curve, CurveRound, HeldOutResults, compare_curves, read, table
from benchmarks.shared.base_starts import start_of_base
from benchmarks.shared.given_base import base_folder
from benchmarks.shared.machine import describe
from benchmarks.shared.recipe_loop import codec_of, open_loop
from benchmarks.shared.right_share import RightShare
from benchmarks.shared.settings import not_negative
from benchmarks.shared.warm_starts import Work
from models.base.errors import UserError
from models.policies.weights import merged_weights
from models.recipes.load import load_recipe
from models.reward_models.read_pairs import read_pairs
from models.training.read_problems import PromptSections, read_problems
from models.training.train import OpenTraining
from models.training.watchers import Watchers

RESULTS = Path(__file__).parents[1] / "results"
RECIPE = "arithmetic_long"
"""The main recipe, trained until its reward is flat; the default."""
DEVICES = ("cpu", "cuda")


class OutOfMinutes(Exception):
    """The budget ended; the training so far is kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure, write and print. Returns 1 if the training stopped by an error, 2 without a device or the
    recipe."""
    options = parser().parse_args(arguments)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # models/ learns on the GPU wherever it sees one
    elif not torch.cuda.is_available():
        print("no CUDA device is to be had; --device cpu trains on the processor", file=sys.stderr)
        return 2
    ends = float("inf") if options.minutes is None else time.perf_counter() + 60 * options.minutes
    try:
        recipe = recipe_of(options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    file: Path = options.out or RESULTS / file_name(options.device, recipe.name)
    settings = {"recipe": recipe.name, "seed": recipe.seed, "rounds": recipe.schedule.rounds,
                "minutes": options.minutes, "overrides": list(options.set)}  # fmt: skip
    curve = Curve(describe(measure=False), options.device, settings)
    logging.disable_progress_bar()
    failed = False
    with _place(options.work) as place:
        try:
            data = recipe.data
            work = Work(place, data.name, None if data.built_in else data)
            train(recipe, work, curve, file, ends, options.base)
        except Exception as error:  # unattended: the results so far are reported all the same
            failed, curve.stopped = True, f"stopped: {type(error).__name__}: {error}"
            curve.write(file)
            if isinstance(error, UserError):
                print(error, file=sys.stderr)
            else:
                traceback.print_exc()
    print(f"{curve.machine.get('gpu', curve.machine['cpu'])}, {curve.precision or 'no policy yet'}\n{table(curve)}")
    if (other := other_file(options.device, file, recipe.name)) is not None:
        try:
            print(f"\ncompared with {other}\n{compare_curves(curve, read(other))}")
        except ValueError as error:
            print(f"\n{other} holds no curve ({str(error).splitlines()[0]})")
    ends_at = f", {curve.before.sampled:.1%} to {curve.after.sampled:.1%}" if curve.before and curve.after else ""
    print(f"{file}: {len(curve.rounds)} rounds{ends_at}{f'; {curve.stopped}' if curve.stopped else ''}")
    return int(failed)


@contextmanager
def _place(kept: Path | None) -> Iterator[Path]:
    """Yield the folder of intermediate files: one that is kept, else one that is removed at the end."""
    if kept is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept


def recipe_of(options: argparse.Namespace) -> Any:
    """Load the recipe as it is trained here.

    Raises:
        UserError: the recipe is not known, has no rounds or draws no completions, or a base is given that it does
            not have.
    """
    overrides = ["engine.name=transformers", f"seed={options.seed}"]
    if options.precision is not None:
        overrides.append(f"policy.precision={options.precision}")
    if options.rounds is not None:
        overrides.append(f"schedule.rounds={options.rounds}")
    recipe = load_recipe(options.recipe, [*overrides, *options.set])
    if recipe.schedule is None or not recipe.rollouts.draws:
        raise UserError(f"{recipe.name}: a curve is drawn of a recipe whose policy learns from completions of its own")
    if options.base and recipe.policy.base is None:
        raise UserError(f"--base: the recipe {recipe.name} begins with a new policy")
    return recipe


def train(
    recipe: Any, work: Work, curve: Curve, file: Path, ends: float = float("inf"), base: Sequence[Path] = ()
) -> None:
    """Train the recipe from its data to its last round and record the results in `curve`, which is written to `file`.

    Args:
        recipe: see `recipe_of`.
        work: where data and models are made.
        curve: curve without rounds, which is filled.
        file: written after every stage and on the way through the rounds.
        ends: reading of `time.perf_counter` with which no further round begins.
        base: files of the recipe's base; none: it is installed.

    Raises:
        UserError: see `models.training.loop.run_loop`.
    """
    clock = _Stages(curve, file)
    data = work.data
    clock.ended("data")
    with tempfile.TemporaryDirectory(dir=work.folder) as own:
        start = _start(recipe, work, curve, clock, Path(own), base)
        reward_model = None
        if any(reward.needs_reward_model for reward in recipe.rewards):
            reward_model = Path(own) / "reward_model"
            codec, longest = codec_of(recipe, start), recipe.policy.size.positions
            pairs, held_out_pairs = (read_pairs(data, codec, split, longest)[0] for split in ("train", "validation"))
            curve.pair_accuracy = fit_to_pairs(
                start, recipe, pairs, reward_model, held_out_pairs, lambda model: work.autocast(recipe, model)
            )
            clock.ended("reward_model")
        monitors = [] if recipe.verifier is None else [RightShare(rule_of(recipe))]
        rewards = [*recipe.rewards, *monitors]
        with open_loop(
            work, recipe, start, rewards, reward_model=reward_model, folder=Path(own), alarm=recipe.alarm
        ) as loop:
            curve.precision = str(loop.learner.autocast or torch.float32).removeprefix("torch.")
            problems = read_problems(data, loop.codec, "validation", PromptSections(recipe), recipe.evaluation.problems)
            clock.ended("opening")
            curve.before = _print_results("before", held_out(recipe, loop.resources.engine, loop.codec, problems))
            clock.ended("evaluation")
            _run(loop, curve, file, ends)
            clock.ended("rounds")
            curve.after = _print_results("after", held_out(recipe, loop.resources.engine, loop.codec, problems))
            clock.ended("evaluation")


def _start(recipe: Any, work: Work, curve: Curve, clock: _Stages, own: Path, files: Sequence[Path]) -> Path:
    """Make the model folder that the rounds begin with and return it."""
    if recipe.policy.base is None:
        start = work.start(recipe)
        clock.ended("warm_start")
        return start
    base = base_folder(recipe.policy.named_base or "", files, work.folder)
    clock.ended("base")
    if recipe.warm_start is None:
        return base
    codec = codec_of(recipe, base)
    problems = read_problems(work.data, codec, "validation", PromptSections(recipe), recipe.evaluation.problems)
    with measuring_engine(work, recipe, base, codec) as engine:
        curve.base = _print_results("base", held_out(recipe, engine, codec, problems))
    clock.ended("evaluation")
    start, curve.warm_start_loss = start_of_base(work, recipe, base, own / "start")
    clock.ended("warm_start")
    return start


def _print_results(name: str, results: HeldOutResults) -> HeldOutResults:
    """Print a measurement and return it."""
    print(f"held out {name}: {results}", file=sys.stderr, flush=True)
    return results


def _run(loop: OpenTraining, curve: Curve, file: Path, ends: float) -> None:
    """Run the rounds, until the last or until the budget has ended."""
    total, every = loop.training.schedule.rounds, 1 if loop.training.policy.base is not None else EVERY

    def watch(number: int, metrics: dict[str, float]) -> None:
        curve.rounds.append(curve_round := CurveRound.of(number, metrics))
        if number % every == 0 or number == 1:
            curve.write(file)
            line = f"round {number} of {total}: reward {curve_round.reward:.3f}, {curve_round.accuracy:.1%} right"
            print(f"{line}, {curve_round.seconds['round']:.2f} s", file=sys.stderr, flush=True)

    def proceed() -> None:
        if curve.rounds and time.perf_counter() >= ends:
            raise OutOfMinutes

    try:
        collapse = loop.run(Watchers(metrics=watch, proceed=proceed))
        if collapse is not None and collapse.kept is not None:
            curve.stopped = str(collapse)
            assert loop.resources.engine is not None, "a recipe whose curve is drawn draws its completions"
            # The engine still has the weights that collapsed.
            loop.resources.engine.load(merged_weights(loop.learner.policy), collapse.kept)
    except OutOfMinutes:
        curve.stopped = f"the minutes ended after round {len(curve.rounds)} of {total}"


class _Stages:
    """Seconds from the end of one stage to that of the next; the curve is written with each."""

    def __init__(self, curve: Curve, file: Path) -> None:
        self._curve, self._file, self._last = curve, file, time.perf_counter()

    def ended(self, stage: str) -> None:
        """Record the end of a stage; the seconds of a stage that comes twice add up."""
        now, seconds = time.perf_counter(), self._curve.seconds
        seconds[stage] = seconds.get(stage, 0.0) + now - self._last
        self._last = now
        self._curve.write(self._file)
        print(f"{stage}: {seconds[stage]:.1f} s", file=sys.stderr, flush=True)


def file_name(device: str, recipe: str = RECIPE) -> str:
    """Name the file of a recipe's curve on a device."""
    return f"main_curve_{device}.json" if recipe == RECIPE else f"real_curve_{recipe}_{device}.json"


def other_file(device: str, file: Path, recipe: str = RECIPE) -> Path | None:
    """Find the other device's curve: next to `file`, else among the kept results; None if there is none."""
    (other,) = (name for name in DEVICES if name != device)
    names = (folder / file_name(other, recipe) for folder in (file.parent, RESULTS))
    return next((at for at in names if at.is_file()), None)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    command = argparse.ArgumentParser(prog="python -m benchmarks.curves.main_curve", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    command.add_argument("--device", choices=DEVICES, required=True)
    command.add_argument(
        "--recipe", default=RECIPE, help=f"what is trained, such as real/smollm2_gsm8k (default {RECIPE})"
    )
    command.add_argument("--base", nargs="+", type=Path, default=[], metavar="FILE",
                         help="wheel or GGUF file of its base, or the parts of one "
                              "(default: as installed)")  # fmt: skip
    command.add_argument("--precision", choices=("auto", "float32", "bfloat16"), help="instead of the recipe's")
    command.add_argument("--seed", type=int, default=0, help="of warm start and rounds (default 0)")
    command.add_argument("--rounds", type=int, help="instead of the recipe's")
    command.add_argument("--minutes", type=not_negative, help="no round begins after; then it is measured")
    command.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="more of the recipe that is changed")
    command.add_argument("--work", type=Path, help="folder that keeps data and converted base (default: none is kept)")
    command.add_argument("--out", type=Path, help="JSON file (default benchmarks/results/main_curve_DEVICE.json, of "
                                                  "other recipes real_curve_RECIPE_DEVICE.json)")  # fmt: skip
    return command


if __name__ == "__main__":
    for key, value in {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
        os.environ.setdefault(key, value)
    sys.exit(main())
