"""Metrics of an evaluation: they equal values that are computed by hand or by counting all cases."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.metrics import (
    auc,
    average,
    flagged_share,
    pass_at_k,
    prompt_values,
    reward_divergence,
)
from models.evaluation.records import Completion, PromptRecord, aligned
from models.evaluation.report import summarise
from models.evaluation.votes import majority


def said(
    answer: int | str | None, correct: bool = False, score: float = 0.0, tokens: int = 5, finished: bool = True
) -> Completion:
    text = f"work #### {answer}" if answer is not None else "no end in sight"
    return Completion(text=text, tokens=tokens, correct=correct, finished=finished, reward_score=score)


def record(id: str, samples: Sequence[Completion], level: int = 1, greedy: Completion | None = None) -> PromptRecord:
    return PromptRecord(id=id, level=level, samples=tuple(samples), greedy=greedy or samples[0])


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(samples: int) -> None:
    for correct in range(samples + 1):
        for k in range(1, samples + 1):
            subsets = list(combinations([True] * correct + [False] * (samples - correct), k))
            assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_majority_is_the_mean_over_all_subsets_with_ties_shared() -> None:
    chance = random.Random(5)
    for _ in range(60):
        samples = []
        for _ in range(chance.randint(1, 8)):
            answer = chance.choice([None, 1, 2, 3, 4])
            samples.append(said(answer, correct=answer == 1))
        for k in range(1, len(samples) + 1):
            shares = []
            for subset in combinations(samples, k):
                votes = Counter(s.text for s in subset if "####" in s.text)
                leaders = [text for text in votes if votes[text] == max(votes.values())]
                shares.append(leaders.count("work #### 1") / len(leaders) if leaders else 0.0)
            assert majority(tuple(samples), k) == pytest.approx(np.mean(shares), abs=1e-12)


def test_one_vote_is_plain_accuracy_and_equal_answers_vote_together() -> None:
    samples = (said("1/2", True), said("0.50", True), said("3"), said("3"), said("4"), said(None))
    assert majority(samples, 1) == pytest.approx(2 / 6)
    assert majority(samples, 6) == 0.5  # a tie: two votes for 1/2 and two for 3
    assert majority((*samples, said("$0.5", True)), 7) == 1.0


def test_too_few_samples_is_one_clear_line() -> None:
    with pytest.raises(UserError, match="pass@4 needs 4 samples a prompt, there are 2"):
        prompt_values([record("a", [said(1), said(2)])], "pass_at_4")
    with pytest.raises(UserError, match="maj@4 needs 4 samples a prompt, there are 2"):
        prompt_values([record("a", [said(1), said(2)])], "maj_at_4")
    with pytest.raises(UserError, match="no prompts"):
        prompt_values([], "tokens")
    with pytest.raises(UserError, match="unknown metric 'acuracy'"):
        prompt_values([record("a", [said(1)])], "acuracy")


EVALUATION = [
    record("a", [said(1, True, 2.0, 4), said(2, False, 1.0, 6)], level=1, greedy=said(1, True)),
    record("b", [said(3, True, 3.0, 4), said(3, True, 3.0, 4)], level=2, greedy=said(9)),
    record("c", [said(5, False, 2.0, 8, False), said(6, False, 0.0, 10)], level=2, greedy=said(6)),
]


def test_each_metric_by_hand() -> None:
    expected: dict[str, list[float]] = {
        "sampled_accuracy": [0.5, 1.0, 0.0],
        "greedy_accuracy": [1, 0, 0],
        "pass_at_1": [0.5, 1.0, 0.0],
        "pass_at_2": [1, 1, 0],
        "maj_at_2": [0.5, 1.0, 0.0],
        "tokens": [5, 4, 9],
        "distinct_share": [1.0, 0.5, 1.0],
        "finished_share": [1.0, 1.0, 0.5],
        "reward_score": [1.5, 3.0, 1.0],
        "level_2_accuracy": [math.nan, 1.0, 0.0],
        "easiest_accuracy": [0.5, math.nan, math.nan],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(prompt_values(EVALUATION, name), values, err_msg=name)
    assert average(prompt_values(EVALUATION, "level_2_accuracy")) == 0.5
    assert math.isnan(average(prompt_values(EVALUATION, "level_7_accuracy")))


def test_auc_is_the_share_of_pairs_ranked_rightly() -> None:
    chance = np.random.default_rng(0)
    scores, correct = chance.integers(0, 6, 60).astype(float), chance.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[correct] for b in scores[~correct]]
    assert auc(scores, correct) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert math.isnan(auc(scores, np.ones(60, dtype=bool)))


def test_divergence_is_zero_of_a_model_that_agrees_and_one_of_its_opposite() -> None:
    right, wrong = said(1, True, 2.0), said(2, False, -1.0)
    assert reward_divergence([record("a", [right, wrong])]) == 0.0
    assert reward_divergence([record("a", [said(1, True, -1.0), said(2, False, 2.0)])]) == 1.0
    # By hand: right scores 2, 3, 3 and wrong scores 1, 2, 0. Of the nine pairs, eight are won and one is tied.
    assert reward_divergence(EVALUATION) == pytest.approx(1 - 8.5 / 9)
    assert math.isnan(reward_divergence([record("a", [said(1, True, math.nan), said(2, False, math.nan)])]))


def test_flagged_samples_are_counted_once_whatever_their_case() -> None:
    records = [record("a", [said("BAD bad"), said("good")]), record("b", [said("worse"), said("fine")])]
    assert flagged_share(records, ["bad", r"\bBad\b", "wors[ea]"]) == 0.5
    assert flagged_share(records, []) == 0.0
    with pytest.raises(UserError, match="not a regular expression"):
        flagged_share(records, ["("])


def test_evaluations_are_aligned_by_prompt_and_others_refused() -> None:
    left, right = aligned(EVALUATION, EVALUATION[::-1])
    assert [r.id for r in left] == [r.id for r in right] == ["a", "b", "c"]
    with pytest.raises(UserError, match="'c' is in one only"):
        aligned(EVALUATION[:2], EVALUATION)
    with pytest.raises(UserError, match="occurs twice"):
        aligned(EVALUATION, [*EVALUATION, EVALUATION[0]])


def test_the_summary_is_short_finite_and_its_names_are_safe() -> None:
    summary = summarise(EVALUATION, ks=(1, 2, 16), safety_patterns=("bad",))
    assert summary["eval/sampled_accuracy"] == summary["eval/pass_at_1"] == 0.5
    assert summary["eval/pass_at_2"] == pytest.approx(2 / 3) and "eval/pass_at_16" not in summary
    assert summary["eval/level_2_accuracy"] == 0.5 and summary["eval/flagged_share"] == 0.0
    many = [record(str(n), [said(n, n % 2 == 0, float(n))] * 16, level=n) for n in range(1, 40)]
    summary = summarise(many, ks=(1, 4, 8, 16, 2), safety_patterns=("bad",))
    assert len(summary) <= 25
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz_/0123456789") for name in summary)
    without = summarise([record("a", [said(1, True, math.nan)])])
    assert "eval/reward_score" not in without and "eval/reward_divergence" not in without
