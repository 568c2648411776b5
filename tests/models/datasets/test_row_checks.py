"""The columns that are computed before a suite checks the rows: tokens, answers, repeated ids and leaked prompts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas import DataFrame

from models.answers.answer_check import AnswerCheck
from models.answers.answers import extract_answer
from models.datasets import row_checks
from models.datasets.row_checks import COMPUTED, Neighbours, computed_columns, facts_of, neighbours_of
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rewards.rules.similarity import Similarity

ALONE = Neighbours(repeated_ids=frozenset(), held_out={}, held_out_ngrams={}, ngram=0)


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def problems(*rows: tuple[str | None, str], **columns: Any) -> DataFrame:
    """Make problems from (prompt, answer) pairs."""
    table = pd.DataFrame(
        {
            "id": [f"train-{number}" for number in range(len(rows))],
            "prompt": [prompt for prompt, _ in rows],
            "answer": [answer for _, answer in rows],
            "level": 1,
            "tests": "",
            "entry_point": "",
        }
    )
    return table.assign(**columns)


def demonstrations(*rows: tuple[str, str, str]) -> DataFrame:
    """Make demonstrations from (prompt, completion, answer) triples."""
    table = problems(*((prompt, answer) for prompt, _, answer in rows))
    return table.drop(columns=["tests", "entry_point"]).assign(completion=[row[1] for row in rows], flaw="none")


def preferences(*rows: tuple[str, str]) -> DataFrame:
    """Make preference pairs from (chosen, rejected)."""
    table = problems(*(("what ?", "") for _ in rows)).drop(columns=["answer", "tests", "entry_point"])
    return table.assign(chosen=[row[0] for row in rows], rejected=[row[1] for row in rows], flaw="slip")


def compute(frame: DataFrame, split: str = "validation", neighbours: Neighbours = ALONE) -> DataFrame:
    return computed_columns(split, frame, neighbours, facts_of([frame]), words, extract_answer)


def test_every_computed_column_is_known_and_can_occur() -> None:
    leak = neighbours_of([("gate", problems(("a b", "")))], ngram=2, image_distance=0)
    frames = [problems(("q", "1")), demonstrations(("q", "so #### 1", "1")), preferences(("a", "b"))]
    seen = {name for frame in frames for name in compute(frame, "train", leak)}
    of_gate = replace(facts_of(frames[:1]), first_of_repeated={})
    seen |= set(computed_columns("gate", frames[0], ALONE, of_gate, words, extract_answer))
    check = AnswerCheck(ExactAnswer(), True)
    seen |= set(computed_columns("gate", frames[0], ALONE, of_gate, words, extract_answer, check_answers=check))
    with_images = replace(of_gate, has_images=True)
    seen |= set(computed_columns("gate", frames[0], ALONE, with_images, words, extract_answer))
    seen |= set(computed_columns("train", frames[0], leak, with_images, words, extract_answer))
    assert seen == set(COMPUTED)


def test_a_demonstration_need_not_mark_its_answer_where_the_verifier_accepts_it_bare() -> None:
    frame = demonstrations(("reverse bird", "drib", "drib"), ("reverse cat", "#### tac", "tac"))
    for verifier, passed in ((ExactAnswer(), [False, True]), (Similarity(reads="whole", right_from=1.0), [True, True])):
        check = AnswerCheck(verifier, False)
        made = computed_columns("train", frame, ALONE, facts_of([frame]), words, extract_answer, check_answers=check)
        assert list(made["completion_answers"]) == passed
        assert "answer_is_marked" not in made


def test_nothing_is_changed_in_place_and_the_index_is_kept() -> None:
    frame = problems(("a", "1"), ("b", "2"), ("a", "1"))[::-1]
    before = frame.copy(deep=True)
    computed = compute(frame, "train")
    pd.testing.assert_frame_equal(frame, before)
    assert list(computed.index) == [2, 1, 0]


def test_tokens_are_those_of_the_prompt_with_its_longest_completion() -> None:
    assert list(compute(problems(("one two three", "")))["tokens"]) == [3]
    assert list(compute(demonstrations(("one two three", "four five", "")))["tokens"]) == [5]
    assert list(compute(preferences(("a", "a b c"), ("a b", "a")))["tokens"]) == [2 + 3, 2 + 2]


def test_ids_whose_hashes_meet_are_not_the_same_and_pieces_are_one_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [("train", problems(("a", ""), ("b", ""))), ("train", problems(("c", "")).assign(id="train-1"))]
    assert neighbours_of(pieces, ngram=0).repeated_ids == {"train-1"}
    monkeypatch.setattr(row_checks, "hashes_of", lambda texts: np.zeros(len(texts), dtype=np.uint64))
    assert neighbours_of(pieces, ngram=0).repeated_ids == {"train-1"}


def test_each_text_of_a_column_is_counted_once() -> None:
    asked: list[str] = []

    def count(texts: Sequence[str]) -> list[int]:
        asked.extend(texts)
        return words(texts)

    frame = problems(("a b", ""), ("c", ""), ("a b", ""))
    tokens = computed_columns("test", frame, ALONE, facts_of([frame]), count, extract_answer)["tokens"]
    assert list(tokens) == [2, 1, 2]
    assert asked == ["a b", "c"]


@pytest.mark.parametrize(
    ("answer", "fits"),
    [("18", True), ("#### 18", True), ("It is so\n#### 18", True), ("two\nlines", False), ("####", False), ("", False)],
)
def test_an_answer_fits_alone_or_marked_and_not_where_it_cannot_be_read_back(answer: str, fits: bool) -> None:
    assert list(compute(problems(("a", "7"), ("b", answer)))["answer_parses"]) == [True, fits]


def test_a_problem_with_unit_tests_needs_no_answer_and_data_without_answers_is_not_asked_for_them() -> None:
    program = "def f(x):\n    return x"
    rows = [("a", "7"), ("b", ""), ("c", ""), ("d", program), ("e", program)]
    tested = problems(*rows, tests=["", "assert f(1) == 1", "", "assert f(1) == 1", ""])
    assert list(compute(tested)["answer_parses"]) == [True, True, False, True, False]
    assert "answer_parses" not in compute(problems(("a", ""), ("b", "")))
    assert "completion_answers" not in compute(demonstrations(("a", "a story", "")))


def test_a_demonstration_must_state_an_answer_right_or_wrong() -> None:
    rows = demonstrations(("a", "1 + 1 = 3 ; #### 3", "2"), ("b", "1 + 1", "2"), ("c", " ", "2"))
    # The blank completion passes here, because the suite reports it in the raw column.
    assert list(compute(rows)["completion_answers"]) == [True, False, True]


def test_chosen_differs_beyond_the_spaces_around_it() -> None:
    rows = preferences(("yes", "no"), ("yes", " yes\n"), ("if a:\n b", "if a:\n  b"))
    assert list(compute(rows)["chosen_differs"]) == [True, False, True]


def test_the_longer_side_counts_one_and_a_tie_half() -> None:
    assert list(compute(preferences(("abc", "a"), ("a", "abc"), ("ab", "cd")))["chosen_is_longer"]) == [1, 0, 0.5]


def test_an_id_is_unique_only_if_no_file_has_it_again() -> None:
    first, second = problems(("a", ""), ("b", "")), preferences(("x", "y"))
    neighbours = neighbours_of([("train", first), ("gate", second)], ngram=0)
    assert list(compute(first, "train", neighbours)["id_is_unique"]) == [False, True]
    assert list(compute(second, "gate", neighbours)["id_is_unique"]) == [False]


def test_missing_ids_are_not_taken_for_the_same_id() -> None:
    frame = problems(("a", ""), ("b", ""), ("c", "")).assign(id=["", "", None])
    assert compute(frame, neighbours=neighbours_of([("train", frame)], ngram=0))["id_is_unique"].all()


@pytest.mark.parametrize("kind", [problems(("Add 5 and 3", "")), demonstrations(("Add 5 and 3", "8", ""))])
@pytest.mark.parametrize("split", ["validation", "gate"])
@pytest.mark.parametrize("prompt", ["Add 5 and 3", "ADD 5  and\n3 ", "Add\u00a05 and 3", "Ａｄｄ 5 and 3"])
def test_a_held_out_prompt_is_found_in_train_whatever_its_case_spaces_and_code_points(
    kind: DataFrame, split: str, prompt: str
) -> None:
    train = problems((prompt, ""), ("Add 5 and 4", ""))
    neighbours = neighbours_of([("train", train), (split, kind)], ngram=0)
    assert list(compute(train, "train", neighbours)["prompt_not_held_out"]) == [False, True]


def test_a_gate_prompt_in_validation_is_reported_there_and_the_gate_is_held_against_nothing() -> None:
    shared = problems(("one two three", ""), ("four five", ""))
    gate = problems(("ONE two three", ""))
    neighbours = neighbours_of([("validation", shared), ("gate", gate)], ngram=2)
    assert list(compute(shared, "validation", neighbours)["prompt_not_held_out"]) == [False, True]
    assert "prompt_not_held_out" not in compute(gate, "gate", neighbours)


def test_an_n_gram_of_the_gate_in_validation_is_reported() -> None:
    near = problems(("the quick brown fox run", ""), ("something else entirely here", ""))
    neighbours = neighbours_of([("validation", near), ("gate", problems(("the quick brown fox jumps", "")))], ngram=4)
    assert list(compute(near, "validation", neighbours)["prompt_shares_no_ngram"]) == [False, True]


def test_an_n_gram_in_common_is_found_and_a_shorter_run_is_not() -> None:
    held_out = problems(("the quick brown fox jumps", ""))
    train = problems(
        ("see THE quick brown fox run", ""), ("the quick brown cow", ""), ("the quick brown fox jumps", "")
    )
    computed = compute(train, "train", neighbours_of([("gate", held_out)], ngram=4))
    # A prompt that occurs whole in the gate is reported only as held out.
    assert list(computed["prompt_shares_no_ngram"]) == [False, True, True]
    assert list(computed["prompt_not_held_out"]) == [True, True, False]


def test_label_shares_are_those_among_the_known_labels() -> None:
    frame = problems(*(("a", ""),) * 5, level=[1, 1, 1, 2, 0])
    np.testing.assert_allclose(compute(frame)["level_share"], [0.75, 0.75, 0.75, 0.25, np.nan])
    assert "level_share" not in compute(frame.assign(level=0))
    assert "flaw_share" not in compute(preferences(("a", "b")).assign(flaw=""))


def test_nulls_are_left_to_the_suite() -> None:
    rows = demonstrations(("a", "#### 1", "1"), ("b", "#### 2", "2")).astype("str")
    rows.loc[0, ["prompt", "completion", "flaw"]] = None
    computed = compute(rows, "train", neighbours_of([("gate", problems((None, "")))], ngram=2))
    assert computed.drop(columns=["tokens", "level_share", "flaw_share"]).all(axis=None)
    assert computed["tokens"][0] == 0
