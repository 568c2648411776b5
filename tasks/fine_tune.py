"""Step 5: reinforcement learning. Opens everything, hands it to the loop, logs what the loop reports."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from prefect import get_run_logger, task
from torch import Tensor
from transformers import PreTrainedModel

from models.datasets.schema import available, read_rows
from models.engine.engine import Engine, open_engine
from models.errors import UserError
from models.learner.fused_log_probs import Distribution
from models.learner.optimiser import build_optimiser
from models.learner.packing import Sequences
from models.loop.fit import ScheduleSettings
from models.loop.learner import Learner
from models.loop.loop import Slots, Watchers, run_loop
from models.loop.rollout import Problem
from models.loop.slots import World
from models.policy.build import on_device, open_policy, with_adapter
from models.policy.folder import save_model_folder
from models.policy.weights import plain_model
from models.recipe.schema import Recipe
from models.reward_model.model import load_reward_model, score_all
from models.text.encoding import Codec
from models.text.token_cache import CachedCodec
from tasks import plots, timing
from tasks.caching import cached_by_key
from tasks.description import cell, section, time_table
from tasks.precision import learner_autocast
from tasks.progress import progress
from tasks.step import Made, StepResult, gpu_slot, run_step, token_folder
from tasks.tracking import records, registry, runs, tags
from tasks.tracking.journal import Row, read_journal
from tasks.tracking.metrics import MetricLog
from tasks.validate_data import clean_folder


@task(name="fine_tune", task_run_name="fine-tune {recipe.name}", **cached_by_key)
def fine_tune(
    key: str,
    recipe: Recipe,
    validated: StepResult,
    warmed: StepResult,
    rewarded: StepResult | None,
    home: Path,
    parent_run: str,
) -> StepResult:
    """Run the recipe's loop from the warm start. The policy lies in `policy/` of the step's folder.

    A killed run left checkpoints in the same folder; this one goes on from the newest.
    """
    settings = recipe.schedule
    assert settings is not None

    def work(folder: Path, run_id: str) -> Made:
        began = time.perf_counter()
        start = Path(warmed.folder) / "policy"
        log_inputs(run_id, recipe, validated, warmed, rewarded)
        policy, tokenizer = open_policy(start, trust_remote_code=recipe.policy.trust_remote_code)
        codec = CachedCodec(tokenizer, recipe.policy.chat, folder=token_folder(home))
        problems = read_problems(clean_folder(validated), codec, "train", recipe)
        learner = build_learner(policy, recipe, settings, home, run_id)
        engine = engine_for(start, recipe, codec, learner.autocast)
        try:
            world = World(codec, engine, reward_scorer(rewarded, recipe, home), recipe.seed)
            with MetricLog(run_id, folder / "metrics.jsonl") as log:
                last, in_rounds = _train(learner, world, recipe, settings, problems, folder, run_id, log)
        finally:
            engine.close()
        curves = read_journal(folder / "metrics.jsonl")
        records.log_figure(
            run_id, "plots/training.png", plots.training_curves(curves, title=f"{recipe.name}: fine-tuning")
        )
        digest = save_model_folder(plain_model(learner.policy), tokenizer, folder / "policy")
        model_id = registry.log_model(run_id, folder / "policy", "policy", "text-generation", step=settings.rounds)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        times = log_times(run_id, recipe, curves, time.perf_counter() - began - in_rounds)
        tail = [row.metrics["reward/total"] for row in curves if "reward/total" in row.metrics]
        headline = f"reward {_mean(tail[:5]):.3f} to {_mean(tail[-5:]):.3f} in {settings.rounds} rounds"
        return Made(
            digest,
            headline,
            {f"last/{k}": v for k, v in last.items() if k.startswith("reward/")} | times,
            {"model_id": model_id},
        )

    with gpu_slot():
        return run_step(home, "fine_tune", key, parent_run, work)


def log_inputs(
    run_id: str, recipe: Recipe, validated: StepResult, warmed: StepResult, rewarded: StepResult | None
) -> None:
    """Record what the policy is made from: rows, warm start, and the very version of the reward model."""
    records.log_dataset(
        run_id, f"{recipe.data.name}/clean", validated.digest[:36], str(clean_folder(validated)), "training"
    )
    registry.log_model_inputs(run_id, [warmed.links["model_id"], *([rewarded.links["model_id"]] if rewarded else [])])
    if rewarded is not None:
        runs.set_tags(run_id, {tags.REWARD_MODEL_VERSION: rewarded.links["version"]})


def log_times(run_id: str, recipe: Recipe, curves: Sequence[Row], outside: float) -> dict[str, float]:
    """Record where the time went, as a table, a figure and the run's description. Returns its main numbers.

    Args:
        curves: the journal of all rounds, those before an interruption too.
        outside: seconds of this process that no round took.
    """
    lines = timing.time_lines(curves, outside)
    records.log_table(run_id, timing.TABLE, timing.table_rows(lines))
    records.log_figure(run_id, "plots/time.png", plots.time_by_round(curves))
    told = section("Where the time went", time_table(lines))
    records.describe(run_id, f"## {cell(recipe.name)}: fine-tuning\n\n{told}\n")
    return timing.time_metrics(lines)


def read_problems(data: Path, codec: Codec, split: str, recipe: Recipe, limit: int | None = None) -> list[Problem]:
    """Encoded problems of a split that leave room for a completion; `limit` takes them evenly spaced.

    Raises:
        UserError: the split has no problems, or none that fits the policy.
    """
    if split not in available(data).get("problems", ()):
        raise UserError(f"the data set {recipe.data.name} has no {split} problems to answer")
    rows = read_rows(data, "problems", split)  # type: ignore[arg-type]
    encoded = codec.prompts([row["prompt"] for row in rows])
    completion = longest_completion(recipe)
    room = longest_sequence(recipe) - completion
    problems = [
        Problem(str(row["id"]), str(row["prompt"]), str(row["answer"]), int(row["level"]), tuple(ids))
        for row, ids in zip(rows, encoded, strict=True)
        if 0 < len(ids) <= room
    ]
    if not problems:
        raise UserError(f"no {split} prompt of {recipe.data.name} leaves room for {completion} tokens of completion")
    if limit is None or limit >= len(problems):
        return problems
    return [problems[index * len(problems) // limit] for index in range(limit)]


def longest_completion(recipe: Recipe) -> int:
    """Tokens that a completion may have, in rollouts or evaluations."""
    slots: Any = recipe
    return max(slots.rollouts.max_tokens, recipe.evaluation.max_tokens or 0)


def longest_sequence(recipe: Recipe) -> int:
    """Tokens of the longest prompt and completion together."""
    if recipe.policy.base is None:
        return recipe.policy.size.positions
    return recipe.validation.max_tokens + longest_completion(recipe)


def build_learner(
    policy: PreTrainedModel, recipe: Recipe, settings: ScheduleSettings, home: Path, run_id: str
) -> Learner:
    """The policy with its optimiser and the reference that the recipe asks for."""
    slots: Any = recipe
    reference: PreTrainedModel | None = None
    adapter_off: Any = None
    if recipe.policy.lora is not None:
        policy = with_adapter(policy, recipe.policy.lora, recipe.seed)
        adapter_off = policy.disable_adapter if slots.reference.needed else None
    elif slots.reference.needed:
        reference = copy.deepcopy(policy).requires_grad_(False)
    policy.train()
    autocast = learner_autocast(recipe.policy, policy, home, run_id)
    drawn = slots.rollouts.sampling
    distribution = Distribution(temperature=drawn.temperature or 1.0, top_p=drawn.top_p, top_k=drawn.top_k)
    return Learner(
        policy,
        build_optimiser(policy, settings.optimiser),
        reference,
        adapter_off,
        autocast,
        distribution,
    )


def engine_for(folder: Path, recipe: Recipe, codec: Codec, autocast: torch.dtype | None) -> Engine:
    """The recipe's engine on the weights of `folder`, in the learner's precision unless the recipe names another."""
    return open_engine(
        folder,
        recipe.engine,
        longest=longest_sequence(recipe),
        end=codec.end,
        seed=recipe.seed,
        dtype=autocast or torch.float32,
        trust_remote_code=recipe.policy.trust_remote_code,
    )


def reward_scorer(rewarded: StepResult | None, recipe: Recipe, home: Path) -> Any:
    """A function that scores whole sequences with the run's reward model; None where there is none."""
    if rewarded is None:
        return None
    section = recipe.reward_model
    assert section is not None, "a reward model was fitted"
    model = on_device(load_reward_model(Path(rewarded.folder) / "reward_model"))
    autocast = learner_autocast(recipe.policy, model, home, None)

    def score(sequences: Sequences) -> Tensor:
        return score_all(model, sequences, token_budget=section.fit.token_budget, autocast=autocast)

    return score


def _train(
    learner: Learner,
    world: World,
    recipe: Recipe,
    settings: ScheduleSettings,
    problems: list[Problem],
    folder: Path,
    run_id: str,
    log: MetricLog,
) -> tuple[dict[str, float], float]:
    """Run the loop. Returns the last value of each metric, and the seconds of the rounds that were run."""
    slots: Any = recipe
    last: dict[str, float] = {}
    in_rounds = 0.0
    logger = get_run_logger()
    with progress("fine-tune", settings.rounds, ("reward/total", "rollouts/length")) as advance:

        def metrics(round_number: int, values: dict[str, float]) -> None:
            nonlocal in_rounds
            last.update(values)
            in_rounds += values["seconds/round"]
            advance(round_number, values)
            log(round_number, values)

        def samples(round_number: int, rows: list[dict[str, object]]) -> None:
            records.log_table(run_id, f"samples/round_{round_number:05d}.json", rows)

        def resumed(rounds: int) -> None:
            log.replay(rounds)
            if rounds:
                logger.info(f"going on from the checkpoint after round {rounds}")
                advance(rounds, {})

        run_loop(
            learner,
            world,
            Slots(slots.rollouts, slots.rewards, slots.select, slots.advantage, slots.objective, slots.reference),
            settings,
            problems,
            folder / "checkpoints",
            Watchers(metrics, samples, resumed),
        )
    return last, in_rounds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
