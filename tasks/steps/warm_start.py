"""Step 3: the starting policy of reinforcement learning: a new or given model, fine-tuned on demonstrations."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from prefect import get_run_logger, task

from models.base.errors import UserError
from models.base.sections import Sections, of
from models.datasets.schema import Split
from models.learner.model_parts import ALL_PARTS
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings
from models.method.environment import Environment
from models.method.feedback import Feedback
from models.method.reward import Reward
from models.policies.base_models.source import carry_source
from models.policies.build import (
    LoraSettings,
    PolicySettings,
    load_causal_model,
    new_policy,
    open_policy,
)
from models.policies.fitted_tokenizer import fitted_tokenizer
from models.policies.folder import given_folder, save_model_folder
from models.policies.trained_parts import set_to_learn
from models.policies.untouched import holds_weights_of, save_with_weights_of
from models.policies.weights import plain_model
from models.text.bridge import Role
from models.text.encoding import Codec
from models.text.end_ids import ends_of_model, name_ends
from models.text.prompt_form import PromptForm
from models.text.token_cache import CachedCodec
from models.training.fits import SupervisedFit, fit_and_judge, fit_demonstrations
from models.training.read_demonstrations import demonstrations
from tasks.compute.fitting import fit_together
from tasks.compute.precision import learner_autocast, precision_folder
from tasks.compute.shared_engine import learner_place, learners
from tasks.data.inputs import log_rows
from tasks.runner.caching import cached_by_key
from tasks.runner.progress import progress
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step, token_folder
from tasks.steps.validate_data import clean_folder, example_of
from tasks.tracking import registry
from tasks.tracking.metrics import MetricLog

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class WarmStartSections(Sections):
    """The sections of the recipe that the warm start reads."""

    data_name: str = of("data.name")
    data_template: str | None = of("data.template")
    seed: int
    policy: PolicySettings = of("starting_policy")
    warm_start: SupervisedSettings | None
    role: Role | None = of("rollouts.episodes.role")
    """Role of the environment's turns in the chat template; None: a demonstration is one turn."""
    adviser: Feedback | None = of("rollouts.adviser")
    """Feedback on wrong demonstrations, if the warm start uses it."""
    teaches: Environment | None = of("rollouts.teaches")
    """Environment that makes further demonstrations from the right ones; None: there is none."""
    verifier: Reward | None = of("shown_verifier")
    """Decides which demonstrations are right, if this is needed; None: the problems' answers decide."""


@task(name="warm_start", **cached_by_key)
def warm_start(context: StepContext[WarmStartSections], validated: StepResult) -> StepResult:
    """Build or open the policy and fine-tune it on demonstrations; write it to `policy/` of the step's folder."""
    recipe, home = context.recipe, context.home

    def work(folder: Path, run_id: str) -> StepOutput:
        data = clean_folder(validated)
        model, tokenizer = begin(recipe.policy, data, recipe.seed)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        form = PromptForm.of(recipe.policy.system, recipe.data_template)
        codec = CachedCodec(tokenizer, recipe.policy.chat, ends_of_model(model), form, folder=token_folder(home))
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
        base = given_folder(named) if (named := recipe.policy.named_base) is not None else None
        untouched = recipe.warm_start is None and base is not None and not recipe.policy.trust_remote_code
        if untouched and base is not None and holds_weights_of(base, policy):
            digest = save_with_weights_of(base, policy, tokenizer, folder / "policy")
        else:
            write_extra = partial(carry_source, base) if base is not None else lambda into: None
            digest = save_model_folder(policy, tokenizer, folder / "policy", write_extra)
        example = example_of(data, "problems", "prompt")
        model_id = registry.log_model(run_id, folder / "policy", "warm-start", "text-generation", example=example)
        get_run_logger().info(f"warm start: {headline}")
        return StepOutput(digest, headline, metrics, {"model_id": model_id})

    with learner_place():
        return run_step(context, work)


def begin(policy: PolicySettings, data: Path, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model before any fine-tuning and its tokenizer: the base without adapters, or a new model."""
    if (base := policy.named_base) is not None:
        return open_policy(base, trust_remote_code=policy.trust_remote_code)
    trained = fitted_tokenizer(data, policy.tokenizer, policy.size.vision)
    return new_policy(policy.size, trained, seed), trained


def adapter_of(policy: PolicySettings) -> LoraSettings | None:
    """Return the LoRA settings of the warm start; None if it trains the model's own weights.

    If the recipe has adapters, a given model is fine-tuned through them. A new model is trained fully, as adapters on
    random weights learn next to nothing; its adapters begin with the loop.
    """
    return policy.lora if policy.base is not None else None


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
    """Fine-tune the model; return it with its metrics."""
    longest = int(model.config.get_text_config().max_position_embeddings)
    parts = (recipe.role, recipe.verifier, recipe.adviser, recipe.teaches)
    train = demonstrations(data, codec, "train", longest, settings, *parts)
    if not len(train):
        wanted = f"that fit {longest} tokens{' and are right' * settings.only_right}"
        raise UserError(f"warm_start: the data set {recipe.data_name} has no demonstrations {wanted}")
    held_out = demonstrations(data, codec, "validation", longest, settings, *parts)
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
        parts=policy.train if policy.base is not None else ALL_PARTS,
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
            model = set_to_learn(model, fit.adapter, fit.parts, fit.seed)
            autocast = learner_autocast(policy.precision, model, home, run_id)
            measured = fit_and_judge(model, fit, autocast, report)
    return model, {f"warm_start/{name}": value for name, value in measured.items()}
