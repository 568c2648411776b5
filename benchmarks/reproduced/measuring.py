"""Measure a model folder on an experiment's held-out rows, by the same code for both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

from benchmarks.reproduced.experiments import Experiment, Row, demonstrations_of, pairs_of
from benchmarks.reproduced.records import HeldOutScores
from models.answers.answers import extract_answer, same_answer
from models.answers.exact import by_answer
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.parts.rewards.rules.similarity import Similarity
from models.policies.build import open_policy
from models.reward_models.model import load_reward_model
from models.reward_models.scoring import score_all
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.tokenizer import load_tokenizer

PRECISION = EngineSettings(precision="float32")
ROWS_AT_ONCE = 8


def measure(experiment: Experiment, folder: Path, rows: Sequence[Row], base: Path) -> HeldOutScores:
    """Measure the model in `folder`.

    Args:
        base: the model that training started from, the reference of a policy's pairs.
    """
    if experiment.measured == "reward_pairs":
        return _measured_pairs(_reward_margins(folder, rows))
    if experiment.measured == "policy_pairs":
        mine, theirs = (_policy_margins(each, rows) for each in (folder, base))
        return _measured_pairs([margin - other for margin, other in zip(mine, theirs, strict=True)])
    return _answers(experiment, folder, rows)


def _answers(experiment: Experiment, folder: Path, rows: Sequence[Row]) -> HeldOutScores:
    """Answer every row once, greedily, and judge the answers."""
    recipe, demonstrations = experiment.load(), demonstrations_of(experiment, rows)
    form = PromptForm.of(recipe.policy.system, recipe.data.template)
    codec = Codec(load_tokenizer(folder), True, ends_of_folder(folder), form)
    prompts = codec.prompts([row["prompt"] for row in demonstrations])
    greedy = Sampling(max_tokens=recipe.evaluation.max_tokens, temperature=0.0, log_probs=False)
    longest = max(map(len, prompts)) + greedy.max_tokens
    engine = open_engine(folder, PRECISION, longest=longest, end=codec.ends, seed=0)
    try:
        made = [group[0] for group in engine.generate(prompts, greedy, 0)]
    finally:
        engine.close()
    attempts = [
        Attempt(Problem(str(number), row["prompt"], row["answer"]), text, each.finished)
        for number, (row, text, each) in enumerate(
            zip(demonstrations, codec.text([each.tokens for each in made]), made, strict=True)
        )
    ]
    strict, lenient = _judged(experiment, attempts)
    return HeldOutScores(
        strict=tuple(map(float, strict)),
        lenient=tuple(map(float, lenient)),
        tokens=fmean(len(each.tokens) for each in made),
        finished=fmean(each.finished for each in made),
    )


def _judged(experiment: Experiment, attempts: Sequence[Attempt]) -> tuple[Sequence[float], Sequence[float]]:
    """Judge attempts by the strict and the lenient metric, [attempts] each."""
    if experiment.measured == "similarity":
        reward = Similarity(metric="gestalt", reads="whole", right_from=1.0)
        return reward.right(attempts), reward.grade(attempts)
    return by_answer(attempts), [_ends_in_answer(attempt) for attempt in attempts]


def _ends_in_answer(attempt: Attempt) -> bool:
    """Return whether the last number of a completion is the answer, marked or not, ended or not."""
    return same_answer(extract_answer(attempt.text, last_number=True), attempt.problem.answer)


def _measured_pairs(margins: Sequence[float]) -> HeldOutScores:
    """Score a pair as right if its margin is above zero."""
    return HeldOutScores(strict=tuple(float(margin > 0) for margin in margins))


def _encoded(folder: Path, rows: Sequence[Row]) -> tuple[Sequences, Sequences]:
    """Encode chosen and rejected answers with their prompts as plain text, [rows] each."""
    codec = Codec(load_tokenizer(folder), False, ends_of_folder(folder))
    prompts, chosen, rejected = zip(*pairs_of(rows), strict=True)
    ids = codec.prompts(list(prompts))
    return tuple(Sequences(ids, codec.completions(list(texts))) for texts in (chosen, rejected))  # type: ignore[return-value]


def _policy_margins(folder: Path, rows: Sequence[Row]) -> list[float]:
    """Return the log-prob of the chosen answer less that of the rejected one, nats, [rows]."""
    policy, _ = open_policy(folder)
    policy = policy.float().eval()
    return _differences(_encoded(folder, rows), lambda sequences: _totals(policy, sequences))


def _totals(policy: nn.Module, sequences: Sequences) -> list[float]:
    """Return the log-prob of each whole completion, nats, [completions]."""
    sums: list[float] = []
    with torch.no_grad():
        for start in range(0, len(sequences.completions), ROWS_AT_ONCE):
            some = sequences.take(range(start, min(start + ROWS_AT_ONCE, len(sequences.completions))))
            log_probs, _ = completion_log_probs(policy, some)
            sums += [float(part.sum()) for part in log_probs.split([len(ids) for ids in some.completions])]
    return sums


def _reward_margins(folder: Path, rows: Sequence[Row]) -> list[float]:
    """Return the score of the chosen answer less that of the rejected one, [rows]."""
    model = load_reward_model(folder)
    return _differences(_encoded(folder, rows), lambda sequences: score_all(model, sequences).tolist())


def _differences(sides: tuple[Sequences, Sequences], values: Callable[[Sequences], list[float]]) -> list[float]:
    """Subtract the values of the rejected answers from those of the chosen ones, [rows]."""
    chosen, rejected = (values(sequences) for sequences in sides)
    return [good - bad for good, bad in zip(chosen, rejected, strict=True)]
