"""Similarity to references: every metric by hand, the texts that are compared, and the verdict in evaluations."""

from __future__ import annotations

import json
from random import Random
from typing import cast

import pytest

from models.answers.likeness import LONGEST, Metric, likeness, likeness_to_any
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.similarity import Similarity, references
from models.task_sets.descriptions import DescriptionsSettings
from tests.support.malformed_texts import TEXTS, malformed, rollout

RESOURCES = cast(RunResources, None)
SEVERAL = Problem("p", "describe", json.dumps(["the bird is red", "a red bird"]))


@pytest.mark.parametrize(
    ("metric", "text", "reference", "value"),
    [
        ("rouge_l", "the red bird", "the bird is red", 2 * 2 / (3 + 4)),  # common subsequence: the bird, or the red
        ("rouge_l", "The bird, is RED.", "the bird is red", 1.0),
        ("rouge_l", "red is bird the", "the bird is red", 2 * 1 / (4 + 4)),
        ("rouge_l", "", "the bird", 0.0),
        ("rouge_l", "cat", "the bird", 0.0),
        ("gestalt", "abcd", "bcde", 2 * 3 / 8),
        ("gestalt", "drib der", "drib der", 1.0),
        ("gestalt", "drib red", "drib der", 2 * (5 + 1) / 16),  # "drib ", then one of d, e and r
        ("gestalt", "xyz", "abc", 0.0),
        ("gestalt", "", "abc", 0.0),
        ("gestalt", "A", "a", 0.0),
        ("support", "the bird", "see : the bird is red", 1.0),
        ("support", "bird the", "see : the bird is red", (1 + 0) / 2),
        ("support", "the the the", "the bird", (1 / 3 + 0) / 2),  # clipped: the reference has one "the"
        ("support", "bird", "the bird", 1.0),
        ("support", "...", "the bird", 0.0),
        ("bleu", "the bird is red", "the bird is red", 1.0),
        ("bleu", "river blue", "river red", 0.5),
    ],
)
def test_each_metric_is_what_its_formula_gives(metric: Metric, text: str, reference: str, value: float) -> None:
    assert likeness(text, reference, metric) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "rouge_l", "gestalt", "support"])
def test_each_of_several_references_is_enough_and_more_of_them_never_cost(metric: Metric) -> None:
    first, second = "the bird is red", "a red bird sits on the hill"
    assert likeness_to_any(first, [second, first], metric) == pytest.approx(1.0)
    assert likeness_to_any(second, [second, first], metric) == pytest.approx(1.0)
    assert likeness_to_any("a red bird", [second, second], metric) == likeness("a red bird", second, metric)
    assert likeness_to_any(first, [], metric) == 0.0


def test_the_whole_the_answer_or_what_stands_before_it_is_read() -> None:
    problem = Problem("p", "the bird is red", "red")
    made = [rollout("the bird #### red", problem)]
    assert Similarity(metric="rouge_l", reads="whole")(RESOURCES, made).tolist() == pytest.approx([2 / (3 + 1)])
    assert Similarity(metric="rouge_l")(RESOURCES, made).tolist() == [1.0]
    before = Similarity(metric="support", reads="before_answer", against="prompt")
    assert before(RESOURCES, [*made, rollout("red", problem), rollout("#### red", problem)]).tolist() == [1.0, 0.0, 0.0]
    assert (before.needs_answers, Similarity().needs_answers) == (False, True)


def test_right_is_what_is_as_alike_as_asked_for_and_only_then_does_it_decide() -> None:
    reward = Similarity(metric="bleu", reads="whole", right_from=1.0)
    texts = [("a red bird", True), ("the bird is red", True), ("the bird is", True), ("a red bird", False), ("", True)]
    assert reward.right([Attempt(SEVERAL, *text) for text in texts]) == [True, True, False, False, False]
    # Against the set of references, a part of a sentence gets 1. Therefore `right` compares with single references.
    assert likeness_to_any("the bird is", references(SEVERAL.answer), "bleu") == pytest.approx(1.0)
    assert (reward.verifies, Similarity().verifies) == (True, False)


def test_a_grade_is_the_likeness_where_the_reward_decides() -> None:
    problem = Problem("p", "reverse: bird", "drib")
    reward = Similarity(metric="gestalt", reads="whole", right_from=1.0)
    attempts = [Attempt(problem, text, ended) for text, ended in (("drib", True), ("drab", True), ("drib", False))]
    assert reward.grade(attempts) == [1.0, 2 * 3 / 8, 0.0]
    assert reward.right(attempts) == [True, False, False]
    assert (reward.grades, Similarity(metric="gestalt").grades) == (True, False)


def test_an_answer_that_is_no_list_of_texts_is_a_reference_itself() -> None:
    for answer in ("[1, 2]", "[", "[]", '["a", 1]', "red", "[" * 100_000):
        assert references(answer) == (answer,)
    assert references('["a", "b"]') == ("a", "b")


@pytest.mark.parametrize("metric", ["bleu", "rouge_l", "gestalt", "support"])
def test_whatever_is_written_has_a_likeness(metric: Metric) -> None:
    for reward in (Similarity(metric=metric, reads="whole"), Similarity(metric=metric, against="prompt")):
        values = reward(RESOURCES, malformed(SEVERAL))
        assert bool(((values >= 0) & (values <= 1)).all()) and values[1::2].tolist() == [0.0] * len(TEXTS)
    assert likeness("a " * LONGEST * 2, "a " * LONGEST, "rouge_l") == 1.0
    assert likeness("ab" * LONGEST * 2, "ab" * LONGEST, "gestalt") == 1.0


def test_sound_descriptions_are_references_and_the_others_are_less_alike() -> None:
    settings, random = DescriptionsSettings(problems={"train": 1}, short=0.4, other=0.5), Random(5)
    reward = Similarity(metric="bleu", reads="whole", right_from=1.0)
    flaws = set()
    for _ in range(200):
        task = settings.draw(random)
        flaw, (text,) = settings.demonstrate(random, task)
        problem = Problem("p", task.prompt, task.answer)
        assert reward.right([Attempt(problem, text, True)]) == [flaw == "none"]
        assert set(" ".join(task.prompt.split()[1:]).split()) <= {*" ".join(references(task.answer)).split(), "and"}
        flaws.add(flaw)
    assert flaws == {"none", "short", "other"}
