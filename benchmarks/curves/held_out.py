"""Measurement of a policy on the held-out problems of a recipe, by the recipe's evaluation settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.curves.records import HeldOutResults
from benchmarks.shared.warm_starts import Work
from models.answers.exact import by_answer
from models.engines.engine import Engine, Sampling
from models.engines.open_engine import open_engine
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.method.attempt import Verify
from models.method.problem import Problem
from models.policies.build import load_causal_model
from models.text.encoding import Codec
from models.training.read_problems import PromptSections, longest_sequence


def rule_of(recipe: Any) -> Verify:
    """Choose the rule that decides which completions are right: the recipe's verifier, else the problems' answers."""
    return by_answer if recipe.verifier is None else recipe.verifier.right  # type: ignore[no-any-return]


def held_out(recipe: Any, engine: Engine | None, codec: Codec, problems: Sequence[Problem]) -> HeldOutResults:
    """Measure the policy that an engine runs.

    Args:
        recipe: has the settings of the evaluation.
        engine: runs the policy.
        codec: the policy's tokenizer, as the recipe uses it.
        problems: held out, with encoded prompts.
    """
    assert engine is not None, "a recipe whose curve is drawn draws its completions"
    settings = recipe.evaluation
    sampling = Sampling(
        max_tokens=settings.max_tokens or recipe.rollouts.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        samples=settings.samples,
    )
    grade = recipe.verifier.grade if recipe.verifier is not None and recipe.verifier.grades else None
    records = evaluate(engine, codec, problems, sampling, settings.seed, None, verify=rule_of(recipe), grade=grade)
    names = ("sampled_accuracy", "greedy_accuracy", "tokens", "loose_accuracy", "finished_share")
    sampled, greedy, tokens, loose, finished = (float(prompt_values(records, name).mean()) for name in names)
    in_part = None if math.isnan(loose) else loose
    return HeldOutResults(sampled, greedy, tokens, len(problems), settings.samples, in_part, finished)


@contextmanager
def measuring_engine(work: Work, recipe: Any, folder: Path, codec: Codec) -> Iterator[Engine]:
    """Open an engine on a model folder in the precision that the recipe learns in; it is closed at the end.

    Args:
        work: has the measured precisions.
        recipe: has the settings of the engine.
        folder: the policy's model folder.
        codec: its tokenizer.
    """
    dtype = work.autocast(recipe, load_causal_model(folder, torch.float32)) or torch.float32
    longest = longest_sequence(PromptSections(recipe))
    engine = open_engine(folder, recipe.engine, longest=longest, end=codec.ends, seed=recipe.seed, dtype=dtype)
    try:
        yield engine
    finally:
        engine.close()
