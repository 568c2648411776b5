"""Measure a model folder on an experiment's held-out rows, by the same code for both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.reproduced.experiments import Experiment, Row, pairs_of
from benchmarks.reproduced.records import HeldOutScores
from models.datasets.formats import final_answer
from models.engine.engine import EngineSettings, Sampling
from models.engine.open_engine import open_engine
from models.evaluation.evaluate import evaluate
from models.evaluation.records import Completion
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.loop.attempt import Attempt
from models.loop.rollout import Problem
from models.policy.build import open_policy
from models.policy.folder import load_tokenizer
from models.reward_model.model import load_reward_model
from models.reward_model.scoring import score_all
from models.rewards.exact_answer import by_answer
from models.rewards.similarity import Similarity
from models.text.answers import extract_answer, same_answer
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder

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
    reverse = experiment.measured == "similarity"
    reward = Similarity(metric="gestalt", reads="whole", right_from=1.0)
    codec = Codec(load_tokenizer(folder), True, ends_of_folder(folder))
    texts = [row["prompt" if reverse else "question"].strip() for row in rows]
    expected = [row["answer"] if reverse else final_answer(row["answer"]) for row in rows]
    prompts = codec.prompts([experiment.template.replace("{prompt}", text) for text in texts])
    problems = [
        Problem(str(number), text, answer, tokens=tuple(ids))
        for number, (text, answer, ids) in enumerate(zip(texts, expected, prompts, strict=True))
    ]
    longest = max(map(len, prompts)) + experiment.max_tokens
    engine = open_engine(folder, PRECISION, longest=longest, end=codec.ends, seed=0)
    try:
        sampling = Sampling(max_tokens=experiment.max_tokens)
        records = evaluate(engine, codec, problems, sampling, 0, None, verify=reward.right if reverse else by_answer)
    finally:
        engine.close()
    greedy = [record.greedy for record in records]
    attempts = [Attempt(problem, made.text, made.finished) for problem, made in zip(problems, greedy, strict=True)]
    lenient = reward.grade(attempts) if reverse else [float(_has_last(each)) for each in attempts]
    return HeldOutScores(
        strict=tuple(float(made.correct) for made in greedy),
        lenient=tuple(lenient),
        tokens=_mean(greedy, "tokens"),
        finished=_mean(greedy, "finished"),
    )


def _has_last(attempt: Attempt) -> bool:
    """Whether the last number of a completion is the answer, marked or not, ended or not."""
    return same_answer(extract_answer(attempt.text, last_number=True), attempt.problem.answer)


def _mean(made: Sequence[Completion], name: str) -> float:
    return sum(float(getattr(each, name)) for each in made) / len(made)


def _measured_pairs(margins: Sequence[float]) -> HeldOutScores:
    return HeldOutScores(strict=tuple(float(margin > 0) for margin in margins))


def _encoded(folder: Path, rows: Sequence[Row]) -> tuple[Sequences, Sequences]:
    """Chosen and rejected answers with their prompts as plain text, [rows] each."""
    codec = Codec(load_tokenizer(folder), False, ends_of_folder(folder))
    prompts, chosen, rejected = zip(*pairs_of(rows), strict=True)
    ids = codec.prompts(list(prompts))
    return tuple(Sequences(ids, codec.completions(list(texts))) for texts in (chosen, rejected))  # type: ignore[return-value]


def _policy_margins(folder: Path, rows: Sequence[Row]) -> list[float]:
    """Log-prob of the chosen answer less that of the rejected one, nats, [rows]."""
    policy, _ = open_policy(folder)
    policy = policy.float().eval()
    return _differences(_encoded(folder, rows), lambda sequences: _totals(policy, sequences))


def _totals(policy: nn.Module, sequences: Sequences) -> list[float]:
    """Log-prob of each whole completion, nats, [completions]."""
    sums: list[float] = []
    with torch.no_grad():
        for start in range(0, len(sequences.completions), ROWS_AT_ONCE):
            some = sequences.take(range(start, min(start + ROWS_AT_ONCE, len(sequences.completions))))
            log_probs, _ = completion_log_probs(policy, some)
            sums += [float(part.sum()) for part in log_probs.split([len(ids) for ids in some.completions])]
    return sums


def _reward_margins(folder: Path, rows: Sequence[Row]) -> list[float]:
    """Score of the chosen answer less that of the rejected one, [rows]."""
    model = load_reward_model(folder)
    return _differences(_encoded(folder, rows), lambda sequences: score_all(model, sequences).tolist())


def _differences(sides: tuple[Sequences, Sequences], values: Callable[[Sequences], list[float]]) -> list[float]:
    chosen, rejected = (values(sequences) for sequences in sides)
    return [good - bad for good, bad in zip(chosen, rejected, strict=True)]
