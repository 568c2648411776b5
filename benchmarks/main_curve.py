"""`python -m benchmarks.main_curve`: the main recipe at full length, from its warm start on, on a CPU or a CUDA device.

The recipe `arithmetic_long`, a longer `make run`, with models/ alone: data and warm start are made anew, the reward
model is fitted, the recipe's rounds run with the transformers engine in the recipe's precision, and the policy is
measured before and after on held-out problems as the recipe's evaluation does. It imports nothing above models/. The
file is written after every stage, the first round and every tenth, so that a run which is cut off leaves what it had.

`--rounds` makes it shorter; `--minutes` bounds the whole, from when the imports are done: the round in which they end
is the last, and then the policy is measured. At least one round runs. The other device's curve is printed beside, from
its file in the same folder or else from benchmarks/results.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from benchmarks.curve_records import EVERY, Curve, HeldOut, Round, beside, read, table
from benchmarks.machine import describe
from benchmarks.pair_reward_model import fit_to_pairs
from benchmarks.recipe_loop import Loop, open_loop
from benchmarks.settings import not_negative
from benchmarks.warm_starts import Work
from models.engine.engine import Sampling
from models.errors import UserError
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.loop.loop import Watchers
from models.loop.read_problems import PromptSections, read_problems
from models.loop.rollout import Problem
from models.policy.folder import load_tokenizer
from models.policy.weights import merged_weights
from models.recipe.load import load_recipe
from models.reward_model.read_pairs import read_pairs
from models.text.encoding import Codec

RESULTS = Path(__file__).parent / "results"
RECIPE = "arithmetic_long"
"""The main recipe, trained until its reward is flat."""
DEVICES = ("cpu", "cuda")


class OutOfMinutes(Exception):
    """The budget ended; what was learned so far stands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure, write and print. Returns 1 where the training stopped by an error, 2 where there is
    no device or no such recipe."""
    options = parser().parse_args(arguments)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # models/ learns on the GPU wherever it sees one
    elif not torch.cuda.is_available():
        print("no CUDA device is to be had; --device cpu trains on the processor", file=sys.stderr)
        return 2
    ends = float("inf") if options.minutes is None else time.perf_counter() + 60 * options.minutes
    file: Path = options.out or RESULTS / file_name(options.device)
    try:
        recipe = recipe_of(options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    settings = {"recipe": recipe.name, "seed": recipe.seed, "rounds": recipe.schedule.rounds,
                "minutes": options.minutes, "overrides": list(options.set)}  # fmt: skip
    curve = Curve(describe(measure=False), options.device, settings)
    logging.disable_progress_bar()
    failed = False
    with tempfile.TemporaryDirectory() as place:
        try:
            train(recipe, Work(Path(place)), curve, file, ends)
        except Exception as error:  # unattended: what was learned before is told all the same
            failed, curve.stopped = True, f"stopped: {type(error).__name__}: {error}"
            curve.write(file)
            traceback.print_exc()
    print(f"{curve.machine.get('gpu', curve.machine['cpu'])}, {curve.precision or 'no policy yet'}\n{table(curve)}")
    if (other := other_file(options.device, file)) is not None:
        try:
            print(f"\nbeside {other}\n{beside(curve, read(other))}")
        except ValueError as error:
            print(f"\n{other} holds no curve ({str(error).splitlines()[0]})")
    ends_at = f", {curve.before.sampled:.1%} to {curve.after.sampled:.1%}" if curve.before and curve.after else ""
    print(f"{file}: {len(curve.rounds)} rounds{ends_at}{f'; {curve.stopped}' if curve.stopped else ''}")
    return int(failed)


def recipe_of(options: argparse.Namespace) -> Any:
    """The main recipe as it is trained here."""
    overrides = ["engine.name=transformers", f"seed={options.seed}"]
    if options.precision is not None:
        overrides.append(f"policy.precision={options.precision}")
    if options.rounds is not None:
        overrides.append(f"schedule.rounds={options.rounds}")
    return load_recipe(RECIPE, [*overrides, *options.set])


def train(recipe: Any, work: Work, curve: Curve, file: Path, ends: float = float("inf")) -> None:
    """Train the recipe from its data to its last round and note in `curve` what is seen; it is written to `file`.

    Args:
        recipe: see `recipe_of`.
        work: where data and models are made.
        curve: with no rounds yet.
        file: written after every stage and every tenth round.
        ends: reading of `time.perf_counter` with which no further round begins.

    Raises:
        UserError: see `models.loop.loop.run_loop`.
    """
    clock = _Stages(curve, file)
    data = work.data
    clock.ended("data")
    start = work.start(recipe)
    clock.ended("warm_start")
    rewarded = None
    if any(reward.needs_reward_model for reward in recipe.rewards):
        rewarded = work.folder / "reward_model"
        codec, longest = Codec(load_tokenizer(start)), recipe.policy.size.positions
        pairs, judged = (read_pairs(data, codec, split, longest)[0] for split in ("train", "validation"))
        curve.pair_accuracy = fit_to_pairs(
            start, recipe, pairs, rewarded, judged, lambda model: work.autocast(recipe, model)
        )
        clock.ended("reward_model")
    with open_loop(work, recipe, start, recipe.rewards, reward_model=rewarded) as loop:
        curve.precision = str(loop.learner.autocast or torch.float32).removeprefix("torch.")
        problems = read_problems(data, loop.codec, "validation", PromptSections(recipe), recipe.evaluation.problems)
        clock.ended("opening")
        curve.before = held_out(loop, problems)
        clock.ended("evaluation")
        _run(loop, curve, file, work.folder / "checkpoints", ends)
        clock.ended("rounds")
        curve.after = held_out(loop, problems)
        clock.ended("evaluation")


def held_out(loop: Loop, problems: Sequence[Problem]) -> HeldOut:
    """The policy that the loop's engine runs, measured as the recipe's evaluation says."""
    asked, engine = loop.recipe.evaluation, loop.engine
    assert engine is not None, "the main recipe draws its completions"
    sampling = Sampling(
        max_tokens=asked.max_tokens or loop.recipe.rollouts.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        samples=asked.samples,
    )
    records = evaluate(engine, loop.codec, problems, sampling, asked.seed, None)
    sampled, greedy, tokens = (
        float(prompt_values(records, name).mean()) for name in ("sampled_accuracy", "greedy_accuracy", "tokens")
    )
    return HeldOut(sampled, greedy, tokens, len(problems), asked.samples)


def _run(loop: Loop, curve: Curve, file: Path, checkpoints: Path, ends: float) -> None:
    """The rounds, until the last or until the budget has ended."""
    total = loop.recipe.schedule.rounds

    def watch(number: int, metrics: dict[str, float]) -> None:
        curve.rounds.append(made := Round.of(number, metrics))
        if number % EVERY == 0 or number == 1:
            curve.write(file)
            said = f"round {number} of {total}: reward {made.reward:.3f}, {made.accuracy:.1%} right"
            print(f"{said}, {made.seconds['round']:.2f} s", file=sys.stderr, flush=True)

    def proceed() -> None:
        if curve.rounds and time.perf_counter() >= ends:
            raise OutOfMinutes

    try:
        collapse = loop.run(checkpoints, Watchers(metrics=watch, proceed=proceed), loop.recipe.alarm)
        if collapse is not None and collapse.kept is not None:
            curve.stopped = str(collapse)
            assert loop.engine is not None, "the main recipe draws its completions"
            loop.engine.load(merged_weights(loop.learner.policy), collapse.kept)  # it still has those that collapsed
    except OutOfMinutes:
        curve.stopped = f"the minutes ended after round {len(curve.rounds)} of {total}"


class _Stages:
    """Seconds from the end of one stage to that of the next; the curve is written with each."""

    def __init__(self, curve: Curve, file: Path) -> None:
        self._curve, self._file, self._last = curve, file, time.perf_counter()

    def ended(self, stage: str) -> None:
        """One that comes twice adds up."""
        now, seconds = time.perf_counter(), self._curve.seconds
        seconds[stage] = seconds.get(stage, 0.0) + now - self._last
        self._last = now
        self._curve.write(self._file)
        print(f"{stage}: {seconds[stage]:.1f} s", file=sys.stderr, flush=True)


def file_name(device: str) -> str:
    """Of a device's curve."""
    return f"main_curve_{device}.json"


def other_file(device: str, file: Path) -> Path | None:
    """The other device's curve: beside `file`, else among the kept results; None where there is none."""
    (other,) = (name for name in DEVICES if name != device)
    return next((at for folder in (file.parent, RESULTS) if (at := folder / file_name(other)).is_file()), None)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.main_curve", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    made.add_argument("--device", choices=DEVICES, required=True)
    made.add_argument("--precision", choices=("auto", "float32", "bfloat16"), help="in place of the recipe's")
    made.add_argument("--seed", type=int, default=0, help="of warm start and rounds (default 0)")
    made.add_argument("--rounds", type=int, help="in place of the recipe's")
    made.add_argument("--minutes", type=not_negative, help="no round begins after; then it is measured")
    made.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="more of the recipe that is changed")
    made.add_argument("--out", type=Path, help="JSON file (default benchmarks/results/main_curve_DEVICE.json)")
    return made


if __name__ == "__main__":
    for key, value in {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
        os.environ.setdefault(key, value)
    sys.exit(main())
