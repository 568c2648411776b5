"""The report on a reward model detects the known biases of artificial judges, which score by length, words or truth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.evaluation.records import Completion, PromptRecord
from models.learner.packing import Sequences
from models.reward_models.probes import answer_alone, moved, probes, repeated
from models.reward_models.suffixes import search_suffix, words_without_answers
from models.reward_models.trust import ReportSettings, length_bias, policy_report, threshold_violations
from tests.support.tiny_resources import CODEC

RIGHT, WRONG = "1 + 2 = 3 #### 3", "1 + 2 = 4 #### 4"


def record(scores: list[float], right: list[bool], tokens: list[int] | None = None, number: int = 0) -> PromptRecord:
    lengths = tokens or [3] * len(scores)
    samples = tuple(
        Completion(RIGHT if fine else WRONG, length, fine, True, score)
        for score, fine, length in zip(scores, right, lengths, strict=True)
    )
    return PromptRecord(f"p{number}", 1, samples, samples[0])


def test_a_judge_of_truth_gains_all_that_there_is_to_gain() -> None:
    records = [record([1.0, 0.0, 0.0, 0.0], [True, False, False, False], number=n) for n in range(3)]
    report = policy_report(records)
    assert report.gain == pytest.approx(0.75)
    assert {n: share.estimate for n, share in report.best_of.items()} == pytest.approx(report.any_of)
    assert report.separation is not None and report.separation.estimate == 1.0


def test_a_right_sample_is_compared_with_as_many_wrong_ones_as_are_set() -> None:
    records = [record([0.6, 0.9, 0.1, 0.2], [True, False, False, False])]
    report = policy_report(records, against=2)
    assert report.one_against is not None and report.reciprocal_rank is not None
    assert report.one_against.estimate == pytest.approx(1 / 3)  # the draw without the sample of score 0.9
    assert report.reciprocal_rank.estimate == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert report.metrics()["reciprocal_rank"] == pytest.approx(2 / 3)
    assert policy_report(records).one_against is None and "one_against" not in policy_report(records).metrics()


def test_a_judge_of_length_is_seen_whatever_the_truth_has_to_do_with_length() -> None:
    # Right answers are longer. The score follows the length among right and among wrong answers, so correctness does
    # not explain it.
    lengths, right = [3, 4, 5, 8, 9, 10], [False, False, False, True, True, True]
    judge = policy_report([record([float(n) for n in lengths], right, lengths)])
    assert judge.length_bias == pytest.approx(1.0)
    # This judge scores by the truth and a little noise. Among right and among wrong answers, the rank correlation of
    # the noise with the length is 0.5; the larger correlation over all samples does not count.
    noise = [0.0, 0.2, 0.1, 5.1, 5.0, 5.15]
    order = policy_report([record(noise, right, lengths)])
    assert order.length_bias == pytest.approx((0.5 + 0.5) / 2)
    assert length_bias([record([1.0, 2.0], [True, False]).samples]) != length_bias([])  # NaN is unequal to NaN
    assert math.isnan(length_bias([record([1.0, 2.0], [True, False]).samples]))


def test_probes_leave_the_truth_and_move_a_judge_of_form() -> None:
    assert (
        answer_alone(RIGHT) == "#### 3"
        and repeated("a b") == "a b a b"
        and answer_alone("no word of it") == ("no word of it")
    )
    texts = [RIGHT, WRONG, "#### 3"]
    prompts = CODEC.prompts(["1 + 2 ="] * len(texts))

    def length(sequences: Sequences) -> Tensor:
        return torch.tensor([float(len(ids)) for ids in sequences.completions])

    before = length(Sequences(prompts, CODEC.completions(texts)))
    for probe, change in probes.items():
        changed = Sequences(prompts, CODEC.completions([change(text) for text in texts]))
        expected = (length(changed) - before).mean() / before.double().std(correction=0)
        assert moved(length, changed, before.numpy()) == pytest.approx(float(expected)) and expected != 0, probe
    # Without spread of the scores, the shift is 0.
    assert moved(length, Sequences(prompts, CODEC.completions(texts)), [2.0, 2.0, 2.0]) == 0.0


def test_the_suffix_that_a_judge_loves_is_searched_out_and_its_worth_is_measured_elsewhere() -> None:
    words = words_without_answers(CODEC)
    loved = words[len(words) // 2]
    prompts = CODEC.prompts(["1 + 2 ="] * 6)

    def judge(sequences: Sequences) -> Tensor:
        """Score 3 for the right answer and 2 for every loved word."""
        right = CODEC.completions([RIGHT])[0][:-1]
        values = []
        for ids in sequences.completions:
            assert ids[-1] == CODEC.end
            values.append(3.0 * (list(ids[: len(right)]) == right) + 2.0 * list(ids).count(loved))
        return torch.tensor(values)

    suffix = search_suffix(
        judge,
        prompts,
        CODEC.completions([WRONG] * 6),
        CODEC.completions([RIGHT] * 6),
        candidates=words,
        length=2,
        end=CODEC.end,
        tried=len(words),
    )
    assert suffix.ids == (loved, loved) and suffix.gain == pytest.approx(4.0) and suffix.fooled == 1.0


def test_no_candidate_of_a_suffix_writes_an_answer() -> None:
    for text in CODEC.text([[number] for number in words_without_answers(CODEC)]):
        assert text.strip() and not any(sign in text for sign in "0123456789#")


def test_a_suffix_needs_two_answers() -> None:
    with pytest.raises(UserError, match="two wrong answers"):
        search_suffix(lambda _: torch.zeros(0), [[1]], [[1]], [[1]], candidates=[1], length=1, end=CODEC.end, tried=1)


def test_what_is_asked_and_not_met_is_said_and_nan_meets_nothing() -> None:
    flat = policy_report([record([0.0, 0.0], [True, True])])  # no separation and no bias can be computed
    asked = ReportSettings(least_separation=0.6, least_gain=0.1, most_length_bias=0.5, most_fooled=0.2)
    assert len(threshold_violations(asked, flat, 0.3)) == 4
    assert threshold_violations(ReportSettings(), flat, 1.0) == []
    good = policy_report([record([float(n) for n in (9, 8, 2, 1, 0, 3)], [True] * 2 + [False] * 4, [3, 4, 4, 5, 3, 5])])
    assert threshold_violations(ReportSettings(least_separation=1.0, least_gain=0.6), good, None) == []
    assert len(threshold_violations(ReportSettings(least_gain=0.7), good, None)) == 1


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(UserError, match="not finite"):
        policy_report([record([float("nan"), 1.0], [True, False])])
