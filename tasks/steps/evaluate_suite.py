"""Evaluation of one policy on a suite of another harness: its tasks, through the policy's engine.

The result is reused if the policy, the suite's settings, the bytes of its files and the versions of the harness are the
same (`tasks.harness.suite`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from prefect import get_run_logger, task

from models.base.sections import Sections, of
from models.engines.engine import EngineSettings
from models.policies.aspects import InUse
from models.policies.base_folder import check_base_folder
from models.policies.folder import check_model_folder, hash_folder
from models.policies.use import read_use
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.tokenizer import load_tokenizer
from tasks.compute.shared_engine import borrowed_engine, engine_place
from tasks.harness.results import (
    SAMPLES,
    headline,
    read_inspect,
    read_lm_eval,
    read_scores,
    suite_metrics,
    write_samples,
)
from tasks.harness.running import ServedPolicy, run_inspect, run_lm_eval
from tasks.harness.server import Policy
from tasks.harness.suite import Suite
from tasks.pages.cost import Cost
from tasks.registered.policy import PolicyFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.tracking import records, registry

MOST_AT_ONCE = 64
"""Largest number of prompts in a request."""


class SuiteSections(Sections):
    """The sections of the recipe that an evaluation on a suite reads."""

    policy: InUse = of("used_policy")
    engine: EngineSettings


@task(name="evaluate_suite", **cached_by_key)
def evaluate_suite(context: StepContext[SuiteSections], policy: PolicyFiles, suite: Suite) -> StepResult:
    """Evaluate a policy on the tasks of a suite. The samples are written to `samples.parquet`.

    Args:
        context: the step's; its name identifies the evaluated policy.
        policy: the policy to measure.
        suite: tasks and harness.
    """
    recipe = context.recipe

    def work(folder: Path, run_id: str) -> StepOutput:
        check_model_folder(policy.folder)
        registry.log_model_inputs(run_id, [policy.model_id])
        drawn = measure_suite(policy.folder, recipe, suite, folder)
        records.log_artifact(run_id, folder / SAMPLES, "evaluation")
        scores = read_scores(folder)
        line = headline(scores)
        get_run_logger().info(f"{context.name}: {line}")
        links = {"model_id": policy.model_id, "suite": suite.settings.title}
        measured = suite_metrics(scores)
        return StepOutput(hash_folder(folder), line, measured, links, tokens=Cost(tokens_sampled=drawn))

    with engine_place():
        return run_step(context, work)


def measure_suite(policy: Path, recipe: SuiteSections, suite: Suite, folder: Path) -> int:
    """Run a suite on the policy in a model folder; write its samples into `folder`. Returns the tokens drawn.

    The harness writes its own files, such as its log, into `folder/harness`. They stay there if it fails.

    Raises:
        UserError: the harness failed, or a task needs something that is not on this machine.
    """
    settings = suite.settings
    after = read_use(policy).after_prompt
    positions, _ = check_base_folder(policy)
    room = settings.longest + len(after)
    room = room if positions is None else min(room, positions)
    tokenizer = load_tokenizer(policy, trust_remote_code=recipe.policy.trust_remote_code)
    codec = Codec(tokenizer, chat=True, also_end=ends_of_folder(policy))
    own = folder / "harness"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    with borrowed_engine(
        policy,
        recipe.engine,
        longest=room + 1,
        end=codec.ends,
        trust_remote_code=recipe.policy.trust_remote_code,
    ) as engine:
        answers = Policy(
            engine, codec, after_prompt=after, longest=room, system=settings.system or recipe.policy.system,
            seed=settings.seed,
        )  # fmt: skip
        served = ServedPolicy(
            policy, answers, room - len(after), min(MOST_AT_ONCE, recipe.engine.max_sequences),
            recipe.policy.trust_remote_code,
        )  # fmt: skip
        if settings.harness == "lm-eval":
            outcome = run_lm_eval(suite, served, own)
            write_samples(read_lm_eval(own, outcome["files"]), folder, outcome["lower"])
        else:
            write_samples(read_inspect(run_inspect(suite, served, own)), folder, [])
    shutil.rmtree(own)
    return answers.tokens
