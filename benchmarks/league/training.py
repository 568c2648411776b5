"""One training of the league: from a kept warm start, a recipe at a budget of completions, measured on the way.

The task and policy are those of the main recipe. The data and one warm start a seed, which the recipes share, are made
once and kept (`benchmarks.shared.warm_starts`); a training is the recipe's own slots in the unchanged loop
(`benchmarks.shared.recipe_loop`), with the transformers engine. Held-out problems are those of the validation split;
each point of a curve is drawn with the same seed.

A recipe learns from the verifier alone: rewards that need a fitted reward model are left out if others remain.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.league.records import Point
from benchmarks.shared.recipe_loop import open_loop
from benchmarks.shared.warm_starts import TASK, Work
from models.answers.exact import by_answer
from models.base.errors import UserError
from models.datasets.schema import available, read_rows
from models.engines.engine import Engine, EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.learner.all_completions import all_log_probs
from models.learner.packing import Sequences
from models.method.learner import Learner, Role
from models.method.problem import Problem
from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from models.policies.use import read_use
from models.policies.weights import merged_weights, plain_model
from models.recipes.comparison import rounds_within
from models.recipes.load import digest, load_recipe, plain
from models.recipes.schema import Recipe
from models.recipes.teachers import frozen_models, recipe_of
from models.text.encoding import Codec
from models.training.read_problems import PromptSections, read_problems
from models.training.train import OpenTraining
from models.training.watchers import Watchers

WARM_START = "warm_start.steps=450"
COMMON = (
    "policy.precision=float32", "engine.name=transformers", "schedule.samples_every=1000000",
    "schedule.checkpoint_every=1000000",
)  # fmt: skip
BUDGET = 7680
PROBLEMS, SAMPLES = 300, 4
"""Held-out problems and samples of each, at every point of a curve."""
POINTS = 5
"""Measurements of a training, in addition to that of its start."""
JUDGED = ("sampled_accuracy", "greedy_accuracy", "tokens", "finished_share")


def frozen_folders(work: Work, recipe: Recipe) -> dict[Role, Path]:
    """Return the model folders of the frozen models that the recipe learns from, made on first use: a recipe that is
    trained has the league's budget and warm start, one that is only fine-tuned is used unchanged."""
    folders = {}
    for role, named in frozen_models(recipe).items():
        assert named.recipe is not None, "the league makes whatever its recipes learn from"
        maker = recipe_of(named, recipe, role)
        if maker.data.name != work.task:  # a judge's own data, and its own schedule
            maker = load_recipe(named.recipe, (*COMMON, *named.set))
            apart = Work(work.folder, maker.data.name)
            folders[role] = trained_policy(apart, maker) if maker.schedule else apart.start(maker)
            continue
        if maker.schedule is None:
            folders[role] = work.start(maker)
            continue
        folders[role] = trained_policy(work, league_recipe(named.recipe, BUDGET, 0, named.set))
    return folders


def trained_policy(work: Work, recipe: Recipe) -> Path:
    """Return the policy that a recipe trains, made on first use."""
    place = work.folder / f"made_{recipe.name}_{digest(plain(recipe), work.data.name)[:12]}"
    if not place.is_dir():
        train(work, recipe, 1, keep=place)
    return place


def league_recipe(name: str, budget: int, seed: int, overrides: Sequence[str] = ()) -> Recipe:
    """Load the recipe as the league trains it: seed, the rounds that come nearest to the budget, the shared beginning.

    Raises:
        UserError: it has another task, or a round of it is larger than the budget.
    """
    return load_recipe(name, league_overrides(name, budget, seed, overrides))


def league_overrides(name: str, budget: int, seed: int, overrides: Sequence[str] = ()) -> list[str]:
    """Return the league's overrides of a recipe.

    Raises:
        UserError: see `league_recipe`.
    """
    shared = (WARM_START, *COMMON, f"seed={seed}", *overrides)
    recipe = load_recipe(name, shared)
    if recipe.data.name != TASK:
        raise UserError(f"{name}: its task is {recipe.data.name}, not {TASK}")
    if budget < recipe.largest_round:
        raise UserError(f"{name}: a round is {recipe.largest_round} completions, more than the budget of {budget}")
    return [*shared, *rounds_within(recipe, budget)]


def rewards_of(recipe: Any) -> list[Any]:
    """Return the rewards that need no fitted reward model.

    Raises:
        UserError: there are none.
    """
    kept = [reward for reward in recipe.rewards if not reward.needs_reward_model]
    if not kept:
        raise UserError(f"{recipe.name}: every reward needs a fitted reward model")
    return kept


@dataclass(frozen=True)
class LeagueTraining:
    """Result of a training."""

    curve: tuple[Point, ...]
    rounds: list[dict[str, float]]
    claims: dict[str, float]
    seconds: float
    """Seconds of the rounds, measurements left out."""


def train(
    work: Work,
    recipe: Any,
    points: int = POINTS,
    log: Callable[[str], None] = lambda line: None,
    keep: Path | None = None,
) -> LeagueTraining:
    """Train `recipe` from its warm start and measure it at the start, `points` times on the way, and at the end.

    Args:
        work: what all trainings share.
        recipe: see `league_recipe`.
        points: measurements in addition to that of the start.
        log: function that receives each measurement as a line.
        keep: a model folder that the policy is written to; None: it is not kept.
    """
    start = work.start(recipe)
    with open_loop(work, recipe, start, rewards_of(recipe), frozen_folders(work, recipe)) as loop:
        return _measured_training(work, recipe, loop, points, log, keep)


def _measured_training(
    work: Work, recipe: Any, loop: OpenTraining, points: int, log: Callable[[str], None], keep: Path | None
) -> LeagueTraining:
    codec, learner, start = loop.codec, loop.learner, loop.training.start
    held_out = read_problems(work.data, codec, "validation", PromptSections(recipe), PROBLEMS)
    judge = TransformersEngine(start, EngineSettings(), end=codec.end)  # takes the weights of one point after the other
    rounds: list[dict[str, float]] = []
    total = recipe.schedule.rounds
    measured = {max(1, round(total * part / points)) for part in range(1, points + 1)}
    curve = [_beginning(judge, codec, held_out, recipe, start)]
    outside = 0.0

    def watch(number: int, metrics: dict[str, float]) -> None:
        nonlocal outside
        rounds.append(metrics)
        if number in measured:
            began = time.perf_counter()
            curve.append(measure_learner(judge, learner, codec, held_out, recipe, number, start))
            log(f"{recipe.name}, seed {recipe.seed}: round {number} of {total}, {curve[-1].accuracy:.1%} right")
            outside += time.perf_counter() - began

    began = time.perf_counter()
    loop.run(Watchers(metrics=watch))
    seconds = time.perf_counter() - began - outside
    if curve[-1].round < len(rounds):  # further draws spent the budget before the last round
        curve.append(measure_learner(judge, learner, codec, held_out, recipe, len(rounds), start))
    if keep is not None:
        save_model_folder(plain_model(learner.policy), codec.tokenizer, keep)
    claims = {}
    given = "validation" in available(work.data).get("preferences", ())
    if given and (recipe.objective.level == "pair" or recipe.rollouts.reads != "problems"):
        begun = load_causal_model(start, torch.float32)
        claims["pair_accuracy"] = pair_accuracy(work.data, codec, learner.policy, begun)
    if any(reward.name == "win_rate" for reward in recipe.rewards) or recipe.objective.level == "pair":
        claims["win_rate"] = win_rate(curve[-1], curve[0])
    return LeagueTraining(tuple(curve), rounds, claims, seconds)


_BEGUN: dict[tuple[Path, str, tuple[str, ...]], Point] = {}


def _beginning(judge: TransformersEngine, codec: Codec, problems: Sequence[Problem], recipe: Any, start: Path) -> Point:
    """Measure the start of a curve, which recipes of one warm start and one limit of tokens share, once a process."""
    shared = (start, f"{recipe.rollouts.max_tokens} {recipe.rollouts.episodes}", tuple(each.id for each in problems))
    if shared not in _BEGUN:
        _BEGUN[shared] = measure(judge, codec, problems, recipe, 0, policy_folder=start)
    return _BEGUN[shared]


def measure_learner(
    judge: TransformersEngine,
    learner: Learner,
    codec: Codec,
    problems: Sequence[Problem],
    recipe: Any,
    done: int,
    start: Path,
) -> Point:
    """Measure the present policy after `done` rounds, drawn as it is meant to be used (`models.policies.use`)."""
    if not recipe.rollouts.exports:
        judge.load(merged_weights(learner.policy))
        return measure(judge, codec, problems, recipe, done)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "policy"
        policy = load_causal_model(start, torch.float32)  # the learner's own continues to learn, with its adapter
        policy.load_state_dict(dict(merged_weights(learner.policy)))
        save_model_folder(
            policy, codec.tokenizer, folder, lambda into: recipe.rollouts.export(learner, codec, start, into)
        )
        engine = open_engine(folder, EngineSettings(name="transformers"), longest=0, end=codec.end, seed=0)
        try:
            return measure(engine, codec, problems, recipe, done, read_use(folder).after_prompt, folder)
        finally:
            engine.close()


def pair_accuracy(data: Path, codec: Codec, policy: nn.Module, start: nn.Module) -> float:
    """Return the share of held-out preferences in which `policy` raised the better answer more, against `start`."""
    rows = read_rows(data, "preferences", "validation")
    prompts = codec.prompts([str(row["prompt"]) for row in rows])
    margins = torch.zeros(len(rows))
    for model, sign in ((policy, 1.0), (start, -1.0)):
        for column, side in (("chosen", 1.0), ("rejected", -1.0)):
            answers = codec.completions([str(row[column]) for row in rows])
            sums = torch.stack([row.sum() for row in all_log_probs(model, Sequences(prompts, answers))])
            margins += sign * side * sums.cpu()
    return float((margins > 0).float().mean())


def win_rate(end: Point, start: Point) -> float:
    """Return how often a sample of the end beats one of the start by the verifier, ties half, mean over the
    problems."""
    pairs = zip(end.by_problem, start.by_problem, strict=True)
    return sum(0.5 + 0.5 * (new - old) for new, old in pairs) / len(end.by_problem)


def measure(
    engine: Engine,
    codec: Codec,
    problems: Sequence[Problem],
    recipe: Any,
    done: int,
    after_prompt: Sequence[int] = (),
    policy_folder: Path | None = None,
) -> Point:
    """Measure held-out accuracy and length of the policy that `engine` runs, after `done` rounds."""
    sampling = Sampling(max_tokens=recipe.rollouts.max_tokens, samples=SAMPLES)
    records = evaluate(
        engine,
        codec,
        problems,
        sampling,
        0,
        None,
        after_prompt=after_prompt,
        episodes=recipe.rollouts.episodes,
        policy_folder=policy_folder,
        verify=by_answer if recipe.verifier is None else recipe.verifier.right,
    )
    values = {name: prompt_values(records, name) for name in JUDGED}
    return Point(
        round=done,
        accuracy=float(values["sampled_accuracy"].mean()),
        by_problem=tuple(round(float(value), 4) for value in values["sampled_accuracy"]),
        greedy=float(values["greedy_accuracy"].mean()),
        tokens=float(values["tokens"].mean()),
        finished=float(values["finished_share"].mean()),
    )
