"""Evaluation records: reading returns what was written, and each prompt has its own completions and scores.

Records are compared by `repr`, because they contain NaN, which `==` does not find equal from Python 3.13 on.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.answers.exact import is_right
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.evaluation.records import Completion, PromptRecord, TurnRecord, turns_of, turns_to_json
from models.evaluation.table import read_records, write_records
from models.learner.packing import Sequences
from models.method.problem import Problem
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from tests.support.tiny_models import tiny_policy, word_tokenizer

RECORDS = [
    PromptRecord(
        "b", 3, (Completion("naïve\n", 4, True, True, 0.5), Completion("", 1, False, False, -2.0)),
        Completion("#### 1", 2, True, True, 1.25),
    ),
    PromptRecord("a", 0, (Completion("x", 1, False, True, 0.0),), Completion("y", 9, False, False, 7.0)),
    PromptRecord("c", 1, (), Completion("only greedy", 2, False, True, 0.0)),
]  # fmt: skip


def test_what_was_written_is_read_again_in_the_same_order(tmp_path: Path) -> None:
    write_records(RECORDS, tmp_path / "records.parquet")
    assert repr(read_records(tmp_path / "records.parquet")) == repr(RECORDS)


def test_scores_that_are_not_there_stay_absent(tmp_path: Path) -> None:
    bare = [replace(RECORDS[2], greedy=Completion("only greedy", 2, False, True))]
    write_records(bare, tmp_path / "records.parquet")
    (records,) = read_records(tmp_path / "records.parquet")
    assert math.isnan(records.greedy.reward_score)
    assert repr(replace(records.greedy, reward_score=0.0)) == repr(RECORDS[2].greedy)


def test_grades_and_surprise_are_kept_where_they_were_measured(tmp_path: Path) -> None:
    graded = [replace(RECORDS[1], greedy=replace(RECORDS[1].greedy, grade=0.5, start_nats=1.25))]
    write_records(graded, tmp_path / "records.parquet")
    (record,) = read_records(tmp_path / "records.parquet")
    assert (record.greedy.grade, record.greedy.start_nats) == (0.5, 1.25)
    assert math.isnan(record.samples[0].grade)


def test_no_records_are_a_table_of_no_rows(tmp_path: Path) -> None:
    write_records([], tmp_path / "records.parquet")
    assert read_records(tmp_path / "records.parquet") == []


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Callable[..., list[PromptRecord]], list[Problem]]:
    folder = tmp_path_factory.mktemp("evaluated") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    codec = Codec(word_tokenizer())
    texts = ["1 + 2 =", "3 +", "4 + 5 + 6 ="]
    problems = [
        Problem(f"p{number}", text, "3", number, tuple(ids))
        for number, (text, ids) in enumerate(zip(texts, codec.prompts(texts), strict=True))
    ]
    engine = TransformersEngine(folder, EngineSettings(precision="float32"), end=codec.end)

    def score(sequences: Sequences) -> Tensor:
        return torch.tensor([float(length) for length in sequences.lengths])

    def run(
        seed: int, score: Callable[[Sequences], Tensor] | None = score, order: tuple[int, int, int] = (0, 1, 2)
    ) -> list[PromptRecord]:
        return evaluate(engine, codec, [problems[i] for i in order], Sampling(max_tokens=6, samples=4), seed, score)

    return run, problems


def test_each_prompt_has_its_own_completions_verified_and_scored(
    measured: tuple[Callable[..., list[PromptRecord]], list[Problem]],
) -> None:
    run, problems = measured
    for record, problem in zip(run(0), problems, strict=True):
        assert (record.id, record.level, len(record.samples)) == (problem.id, problem.level, 4)
        for completion in (record.greedy, *record.samples):
            assert completion.reward_score == len(problem.tokens) + completion.tokens
            assert completion.correct == is_right(completion.text, "3", finished=completion.finished)
            assert completion.finished or completion.tokens == 6


def test_the_seed_decides_the_samples_and_not_the_greedy_answer(
    measured: tuple[Callable[..., list[PromptRecord]], list[Problem]],
) -> None:
    run, _ = measured
    first, second = run(1), run(2)
    assert repr(run(1)) == repr(first) != repr(second)
    assert repr([record.greedy for record in first]) == repr([record.greedy for record in second])


def test_without_a_reward_model_scores_are_absent(
    measured: tuple[Callable[..., list[PromptRecord]], list[Problem]],
) -> None:
    run, _ = measured
    assert all(math.isnan(record.greedy.reward_score) for record in run(0, score=None))


def test_the_greedy_answer_does_not_depend_on_the_other_prompts(
    measured: tuple[Callable[..., list[PromptRecord]], list[Problem]],
) -> None:
    run, _ = measured
    turned, straight = run(0, order=(2, 1, 0)), run(0)
    assert repr([record.greedy for record in turned]) == repr([record.greedy for record in reversed(straight)])


def test_turns_recorded_by_an_earlier_release_are_read() -> None:
    old = Completion("bet", 3, False, True, turns='[{"said": "bet", "heard": "call", "reward": 0.5}]')
    new = replace(old, turns=turns_to_json([TurnRecord("bet", "call", 0.5)]))
    assert turns_of(old) == turns_of(new) == [TurnRecord("bet", "call", 0.5)] and turns_of(replace(old, turns="")) == []
