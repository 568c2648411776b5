"""Step 4b: fit of a process reward model to labelled steps; below its minimum accuracy, the flow stops here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from prefect import get_run_logger, task

from models.base.device import on_device
from models.base.errors import UserError
from models.policies.folder import save_model_folder
from models.reward_models.model import load_reward_model, reward_model_from_policy
from models.reward_models.process import write_reading
from models.reward_models.solution_rows import read_solutions
from models.reward_models.step_accuracy import first_errors, right_of_values, step_accuracy
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.tokenizer import load_tokenizer
from models.training.fits import ProcessFit, fit_and_value, fit_steps
from tasks.compute.fitting import fit_together
from tasks.compute.precision import learner_autocast, precision_folder
from tasks.compute.shared_engine import learner_place, learners
from tasks.runner.caching import cached_by_key
from tasks.runner.progress import progress
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.fit_reward_model import RewardModelSections, register
from tasks.steps.validate_data import clean_folder, example_of
from tasks.tracking import registry
from tasks.tracking.metrics import MetricLog

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@task(name="process_model", **cached_by_key)
def process_model(
    context: StepContext[RewardModelSections], validated: StepResult, warmed: StepResult, labelled: StepResult
) -> StepResult:
    """Fit a process reward model, evaluate it on held-out steps, and register it.

    It is written to `reward_model/` of the step's folder.

    Raises:
        UserError: its held-out accuracy is below the recipe's `reward_model.least_accuracy`.
    """
    recipe, home = context.recipe, context.home
    section = recipe.reward_model
    assert section is not None and section.process is not None
    reading = section.process.reading

    def work(folder: Path, run_id: str) -> StepOutput:
        data, start = clean_folder(validated), Path(warmed.folder) / "policy"
        registry.log_model_inputs(run_id, [warmed.links["model_id"]])
        trusted = recipe.trust_remote_code
        tokenizer = load_tokenizer(start, trust_remote_code=trusted)
        fit = ProcessFit(
            seed=recipe.seed,
            precision=recipe.precision,
            trust_remote_code=trusted,
            start=start.absolute(),
            precisions=precision_folder(home).absolute(),
            result=(folder / "fitted").absolute(),
            settings=section.fit,
            solutions=read_solutions(Path(labelled.folder) / "train.jsonl"),
            judged=read_solutions(Path(labelled.folder) / "validation.jsonl"),
        )
        with MetricLog(run_id, folder / "metrics.jsonl") as log:
            model, values = _fit_model(fit, log, home, run_id)
        model.config.pad_token_id = Codec(tokenizer, recipe.chat, ends_of_folder(start)).pad
        predictions, labels = [row.tolist() for row in values], [solution.labels for solution in fit.judged]
        accuracy = step_accuracy(predictions, labels)
        metrics = {"reward_model/step_accuracy": accuracy} if accuracy == accuracy else {}
        if (right_side := right_of_values(predictions, labels)) is not None:
            metrics["reward_model/right_side"] = right_side.estimate
        errors = first_errors(predictions, labels)
        error_metrics = {
            "first_error_f1": errors.f1,
            "first_error_named": errors.erroneous,
            "no_error_named": errors.correct,
        }
        metrics |= {f"reward_model/{name}": value for name, value in error_metrics.items() if value == value}
        digest = save_model_folder(
            model, tokenizer, folder / "reward_model", lambda target: write_reading(target, reading)
        )
        example = example_of(data, "problems", "prompt")
        model_id = registry.log_model(
            run_id, folder / "reward_model", "reward-model", "text-classification", example=example
        )
        version = register(recipe, model_id, digest, f"{accuracy:.3f}", context.run, "step")
        get_run_logger().info(f"process reward model: held-out step accuracy {accuracy:.3f}")
        if not accuracy >= section.least_accuracy and section.least_accuracy > 0:
            raise UserError(
                f"reward model: held-out step accuracy {accuracy:.3f} is below reward_model.least_accuracy "
                f"{section.least_accuracy}; stopped before reinforcement learning (see its run {run_id})"
            )
        return StepOutput(digest, f"step accuracy {accuracy:.3f}", metrics, {"model_id": model_id, "version": version})

    with learner_place():
        return run_step(context, work)


def _fit_model(fit: ProcessFit, log: MetricLog, home: Path, run_id: str) -> tuple[PreTrainedModel, list[Tensor]]:
    """Return the fitted model, and the value of each step of the held-out solutions."""
    with progress("process reward model", fit.settings.updates(max(1, len(fit.solutions))), ("loss",)) as advance:

        def report(step: int, metrics: dict[str, float]) -> None:
            advance(step, metrics)
            log(step, {f"reward_model/train_{key}": value for key, value in metrics.items()})

        if learners() > 1:
            values = fit_together(fit_steps, fit, log, report, run_id)
            model = load_reward_model(fit.result, trust_remote_code=fit.trust_remote_code)
            shutil.rmtree(fit.result)
            return model, values
        model = reward_model_from_policy(fit.start, seed=fit.seed, trust_remote_code=fit.trust_remote_code)
        autocast = learner_autocast(fit.precision, on_device(model), home, run_id)
        return model, fit_and_value(model, fit, autocast, report)
