"""Step 3: the policy that reinforcement learning begins with: a new or a given model, fine-tuned on demonstrations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from prefect import get_run_logger, task

from models.datasets.row_table import BATCH_ROWS, Names, Row, RowTable, Texts, open_rows
from models.datasets.schema import Split, available
from models.episodes.demonstrations import in_turns
from models.errors import UserError
from models.fits import SupervisedFit, fit_and_judge, fit_demonstrations
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings
from models.loop.attempt import Attempt
from models.loop.feedback import Feedback
from models.loop.rollout import Problem
from models.loop.slots import Reward
from models.policy.build import LoraSettings, PolicySettings, load_causal_model, new_policy, open_policy, with_adapter
from models.policy.folder import save_model_folder
from models.policy.weights import plain_model
from models.rewards.exact_answer import is_right
from models.text.bridge import Role
from models.text.encoding import Codec
from models.text.end_ids import ends_of_model, name_ends
from models.text.token_cache import CachedCodec
from tasks.caching import cached_by_key
from tasks.fitting import fit_together
from tasks.inputs import log_rows
from tasks.precision import learner_autocast, precision_folder
from tasks.progress import progress
from tasks.sections import Sections, of
from tasks.shared_engine import learner_place, learners
from tasks.step import Made, StepContext, StepResult, run_step, token_folder
from tasks.steps.validate_data import clean_folder, example_of, fitted_tokenizer
from tasks.tracking import registry
from tasks.tracking.metrics import MetricLog

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class WarmStartSections(Sections):
    """What the start depends on, beside the rows."""

    data_name: str = of("data.name")
    seed: int
    policy: PolicySettings
    warm_start: SupervisedSettings | None
    role: Role | None = of("rollouts.episodes.role")
    """Who an environment is in a chat template; None: a demonstration is one turn."""
    adviser: Feedback | None = of("rollouts.adviser")
    """Who says what of a demonstration that is wrong, where the warm start tells that."""
    verifier: Reward | None = of("shown_verifier")
    """Decides which demonstrations are right, where that is asked; None: the problems' answers do."""


@task(name="warm_start", **cached_by_key)
def warm_start(context: StepContext[WarmStartSections], validated: StepResult) -> StepResult:
    """Build or open the policy and fine-tune it on the clean demonstrations; it lies in `policy/` of the folder."""
    recipe, home = context.recipe, context.home

    def work(folder: Path, run_id: str) -> Made:
        data = clean_folder(validated)
        model, tokenizer = begin(recipe.policy, data, recipe.seed)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        codec = CachedCodec(tokenizer, recipe.policy.chat, ends_of_model(model), folder=token_folder(home))
        metrics: dict[str, float] = {"parameters": float(parameters), "vocabulary": float(len(tokenizer))}
        headline = f"{parameters / 1e6:.2f}M parameters, as given"
        if recipe.warm_start is not None:
            with MetricLog(run_id, folder / "metrics.jsonl") as log:
                model, measured = _fine_tune(model, codec, data, recipe, recipe.warm_start, log, home, folder, run_id)
            metrics |= measured
            loss = metrics["warm_start/held_out_loss"]
            headline = f"{parameters / 1e6:.2f}M parameters, held-out loss {loss:.3f} nats a token"
        policy = plain_model(model)
        name_ends(policy, codec.ends)
        digest = save_model_folder(policy, tokenizer, folder / "policy")
        example = example_of(data, "problems", "prompt")
        model_id = registry.log_model(run_id, folder / "policy", "warm-start", "text-generation", example=example)
        get_run_logger().info(f"warm start: {headline}")
        return Made(digest, headline, metrics, {"model_id": model_id})

    with learner_place():
        return run_step(context, work)


def begin(policy: PolicySettings, data: Path, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model before any fine-tuning, without adapters."""
    if policy.base is not None:
        return open_policy(policy.base, trust_remote_code=policy.trust_remote_code)
    trained = fitted_tokenizer(data, policy.tokenizer)
    return new_policy(policy.size, trained, seed), trained


def adapter_of(policy: PolicySettings) -> LoraSettings | None:
    """What learns in place of the model's own weights.

    Where the recipe asks for adapters a given model is fine-tuned by them. A new one is fitted whole, as adapters on
    random weights learn next to nothing; its adapters begin with the loop.
    """
    return policy.lora if policy.base is not None else None


def demonstrations(
    data: Path,
    codec: Codec,
    split: str,
    longest: int,
    settings: SupervisedSettings | None = None,
    role: Role | None = None,
    verifier: Reward | None = None,
    adviser: Feedback | None = None,
) -> Sequences:
    """Encoded demonstrations of a split that fit into `longest` tokens, each of a large split read when it is drawn;
    empty where the data set has none.

    Args:
        settings: which are left out, and what is told in place of a prompt; None: none, and nothing.
        role: who an environment is in a chat template: they have several turns; None: each is one turn.
        verifier: decides which are right; None: the answers that they are to state do.
        adviser: says what is told of a wrong one, where feedback is told.
    """
    if split not in available(data).get("demonstrations", ()):
        return Sequences([], [])
    table = open_rows(data, "demonstrations", split)  # type: ignore[arg-type]
    settings = settings or SupervisedSettings()

    verified = None if verifier is None or not settings.judges else _verified(data, split, table, verifier)

    def right(row: Row) -> bool:
        if verified is not None:
            return str(row["id"]) in verified
        return is_right(str(row["completion"]), str(row["answer"]), finished=True)

    def shown(column: str) -> Callable[[Row], str | None]:
        return lambda row: str(row[column]) if not settings.only_right or right(row) else None

    asked, said = [shown("prompt")], [shown("completion")]
    if settings.context:
        hint_of = _told(table, settings, right, adviser)
        asked.append(lambda row: _context(row, settings, hint) if (hint := hint_of(row)) is not None else None)
        said.append(lambda row: str(row["completion"]) if hint_of(row) is not None else None)
    prompts = codec.rows_of_prompts(Texts(table, tuple(asked)))
    if role is not None:
        texts = (text for some in Texts(table, tuple(said)) for text in some)
        return in_turns(codec, role, zip(prompts, texts, strict=True), longest, settings.counts)
    completions = codec.rows_of_completions(Texts(table, tuple(said)))
    fitting = np.flatnonzero(prompts.lengths + completions.lengths <= longest)
    return Sequences(prompts.take(fitting).held(), completions.take(fitting).held())


def _verified(data: Path, split: str, table: RowTable, verifier: Reward) -> set[str]:
    """Ids of the demonstrations that a verifier holds for right, each as an attempt at the problem that it names."""
    known: tuple[Names, RowTable] | None = None
    if split in available(data).get("problems", ()):
        problems = open_rows(data, "problems", split)  # type: ignore[arg-type]
        known = Names(problems.column("id")), problems
    right: set[str] = set()
    for batch in table.batches():
        rows = batch.to_pylist()
        places = known[0].rows([str(row["prompt_id"]) for row in rows]) if known else [[]] * len(rows)
        asked = iter(known[1].rows([place for some in places for place in some[:1]])) if known else iter(())
        attempts = [
            Attempt(_problem(row, next(asked) if some else {}), str(row["completion"]), finished=True)
            for row, some in zip(rows, places, strict=True)
        ]
        right |= {str(row["id"]) for row, sound in zip(rows, verifier.right(attempts), strict=True) if sound}
    return right


def _problem(row: Row, problem: Row) -> Problem:
    """What a demonstration is of, with the tests of its problem where there is such."""
    tests, entry_point = (str(problem.get(name) or "") for name in ("tests", "entry_point"))
    return Problem(str(row["prompt_id"]), str(row["prompt"]), str(row["answer"]), tests=tests, entry_point=entry_point)


def _told(
    table: RowTable, settings: SupervisedSettings, right: Callable[[Row], bool], adviser: Feedback | None
) -> Callable[[Row], str | None]:
    """What is told of a demonstration before it is shown once more; None: it is not shown again."""
    if settings.tells == "another":
        another = _another(table)
        return lambda row: another(row) if not settings.only_right or right(row) else None
    if settings.tells != "feedback":
        column = "answer" if settings.tells == "answer" else "completion"
        return lambda row: str(row[column]) if right(row) else None
    assert adviser is not None, "the recipe check makes sure that somebody says something"
    rows_of = _rows_by_prompt(table)

    @lru_cache(maxsize=BATCH_ROWS)
    def of_prompt(prompt_id: str) -> str | None:
        tried = next((row for row in rows_of(prompt_id) if not right(row)), None)
        if tried is None:
            return None
        attempt = Attempt(_problem(tried, {}), str(tried["completion"]), finished=True)
        return f"{attempt.text} {adviser([attempt])[0].text}".strip()

    return lambda row: of_prompt(str(row["prompt_id"])) if right(row) else None


def _rows_by_prompt(table: RowTable) -> Callable[[str], list[Row]]:
    """Says the demonstrations of a prompt, in the data's order."""
    names = Names(table.column("prompt_id"))
    return lambda prompt_id: table.rows(names.rows([prompt_id])[0])


def _another(table: RowTable) -> Callable[[Row], str | None]:
    """Says the demonstration of the same prompt that stands behind a given one, the first behind the last; None where
    there is no other."""
    rows_of = _rows_by_prompt(table)

    @lru_cache(maxsize=BATCH_ROWS)
    def of_prompt(prompt_id: str) -> dict[str, str]:
        return {str(row["id"]): str(row["completion"]) for row in rows_of(prompt_id)}

    def another(row: Row) -> str | None:
        every = of_prompt(str(row["prompt_id"]))
        place = list(every).index(str(row["id"]))
        return list(every.values())[(place + 1) % len(every)] if len(every) > 1 else None

    return another


def _context(row: Row, settings: SupervisedSettings, hint: str) -> str:
    """A prompt with its answer, its solution, or a flawed one with what is said of it."""
    return (settings.context or "").replace("{prompt}", str(row["prompt"])).replace("{told}", hint)


def _fine_tune(
    model: PreTrainedModel,
    codec: Codec,
    data: Path,
    recipe: WarmStartSections,
    settings: SupervisedSettings,
    log: MetricLog,
    home: Path,
    folder: Path,
    run_id: str,
) -> tuple[PreTrainedModel, dict[str, float]]:
    """The model after it, and what was measured."""
    longest = int(model.config.max_position_embeddings)
    train = demonstrations(data, codec, "train", longest, settings, recipe.role, recipe.verifier, recipe.adviser)
    if not len(train):
        wanted = f"that fit {longest} tokens{' and are right' * settings.only_right}"
        raise UserError(f"warm_start: the data set {recipe.data_name} has no demonstrations {wanted}")
    held_out = demonstrations(
        data, codec, "validation", longest, settings, recipe.role, recipe.verifier, recipe.adviser
    )
    used: tuple[tuple[Split, Sequences], ...] = (("train", train), ("validation", held_out))
    for split, sequences in used:
        if len(sequences):
            rows = zip(sequences.prompts, sequences.completions, strict=True)
            log_rows(run_id, recipe.data_name, "demonstrations", split, rows, data)
    policy = recipe.policy
    fit = SupervisedFit(
        seed=recipe.seed,
        precision=policy.precision,
        trust_remote_code=policy.trust_remote_code,
        start=(folder / "unfitted").absolute(),
        precisions=precision_folder(home).absolute(),
        result=(folder / "fitted").absolute(),
        settings=settings,
        adapter=adapter_of(policy),
        train=train,
        judged=held_out if len(held_out) else train.take(list(range(min(200, len(train))))),
    )
    with progress("warm start", settings.steps, ("loss",)) as advance:

        def report(step: int, metrics: dict[str, float]) -> None:
            advance(step, metrics)
            log(step, {f"warm_start/{name}": value for name, value in metrics.items()})

        if learners() > 1:
            save_model_folder(model, codec.tokenizer, fit.start)
            measured = fit_together(fit_demonstrations, fit, log, report, run_id)
            model = load_causal_model(fit.result, torch.float32, trust_remote_code=fit.trust_remote_code)
            for made in (fit.start, fit.result):
                shutil.rmtree(made)
        else:
            model = with_adapter(model, fit.adapter, fit.seed) if fit.adapter else model
            autocast = learner_autocast(policy.precision, model, home, run_id)
            measured = fit_and_judge(model, fit, autocast, report)
    return model, {f"warm_start/{name}": value for name, value in measured.items()}
