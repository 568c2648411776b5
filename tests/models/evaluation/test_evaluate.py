"""`evaluate` on a tiny policy: its stages, greedy and sampled completions, reward scores and grades."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import STAGES, evaluate
from models.evaluation.metrics import prompt_values
from models.evaluation.report import summarise
from models.learner.packing import Sequences
from models.method.problem import Problem
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from tests.support.tiny_models import tiny_policy, word_tokenizer

TEXTS = ["7 + 5", "3", "1 + 1 + 1 ="]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersEngine]:
    folder = tmp_path_factory.mktemp("evaluate") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    running = TransformersEngine(folder, EngineSettings(max_sequences=4, precision="float32"), end=1)
    yield running
    running.close()


@pytest.fixture
def problems() -> list[Problem]:
    codec = Codec(word_tokenizer())
    prompts = codec.prompts(TEXTS)
    return [Problem(f"p{i}", TEXTS[i], "12", 1, tuple(ids)) for i, ids in enumerate(prompts)]


def test_each_stage_is_told_once_as_it_begins(engine: TransformersEngine, problems: list[Problem]) -> None:
    metrics: list[str] = []
    evaluate(engine, Codec(word_tokenizer()), problems, Sampling(max_tokens=6, samples=2), 0, None, metrics.append)
    assert tuple(metrics) == STAGES


def test_every_problem_has_its_greedy_and_its_samples_and_the_scores_of_its_own_sequences(
    engine: TransformersEngine, problems: list[Problem]
) -> None:
    codec, sampling = Codec(word_tokenizer()), Sampling(max_tokens=6, samples=3)
    seen = []

    def score(sequences: Sequences) -> Tensor:
        rows = [(*prompt, *ids) for prompt, ids in zip(sequences.prompts, sequences.completions, strict=True)]
        seen.extend(rows)
        return torch.tensor([float(sum(ids)) for ids in rows])

    measured = evaluate(engine, codec, problems, sampling, 5, score)
    prompts = [problem.tokens for problem in problems]
    sampled = engine.generate(prompts, sampling, 5)
    greedy = engine.generate(prompts, Sampling(max_tokens=6, temperature=0.0), 5)
    assert [record.id for record in measured] == ["p0", "p1", "p2"]
    for record, problem, first, rest in zip(measured, problems, greedy, sampled, strict=True):
        for completion, made in zip([record.greedy, *record.samples], [*first, *rest], strict=True):
            assert completion.tokens == len(made.tokens)
            assert completion.reward_score == sum(problem.tokens) + sum(made.tokens)
    assert len(seen) == 3 * 4
    plain = evaluate(engine, codec, problems, sampling, 5, None)
    assert all(math.isnan(record.greedy.reward_score) for record in plain)
    assert [record.greedy.text for record in plain] == [record.greedy.text for record in measured]


def test_completions_are_graded_where_the_verifier_grades_and_else_not(
    engine: TransformersEngine, problems: list[Problem]
) -> None:
    codec, sampling = Codec(word_tokenizer()), Sampling(max_tokens=6, samples=2)
    plain = evaluate(engine, codec, problems, sampling, 0, None)
    graded = evaluate(
        engine, codec, problems, sampling, 0, None, grade=lambda attempts: [len(each.text) / 100 for each in attempts]
    )
    for record, without in zip(graded, plain, strict=True):
        for completion in (record.greedy, *record.samples):
            assert completion.grade == len(completion.text) / 100
        assert math.isnan(without.greedy.grade)
    mean = sum(len(sample.text) / 100 for sample in graded[0].samples) / 2
    assert prompt_values(graded, "loose_accuracy")[0] == pytest.approx(mean)
    assert "eval/loose_accuracy" in summarise(graded) and "eval/loose_accuracy" not in summarise(plain)
