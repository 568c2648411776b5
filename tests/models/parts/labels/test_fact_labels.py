"""Labels of the steps of a description: right and wrong facts, steps without one, and steps on their own."""

import math
from dataclasses import replace

from models.answers.exact import by_answer
from models.engines.engine import Sampling
from models.method.problem import Problem
from models.method.registry import parts
from models.parts.labels.facts import FactLabels
from models.reward_models.solutions import LabellingTools
from tests.support.tiny_engines import Saying
from tests.support.tiny_resources import CODEC

PROBLEM = Problem("p", "3 + 4", "3 4 ; 5 6", tokens=tuple(CODEC.prompts(["3 + 4"])[0]))


def labels(text: str, problem: Problem = PROBLEM) -> list[float | None]:
    bench = LabellingTools(
        Saying(CODEC, lambda words, seed: ""), CODEC, by_answer, Sampling(max_tokens=40), ("\n", ";"), 0, {}
    )
    (solution,) = bench.read([problem], [tuple(CODEC.completions([text])[0])], [True])
    (row,) = FactLabels().label(bench, [solution])
    return [None if math.isnan(label) else label for label in row.tolist()]


def test_each_step_is_labelled_on_its_own() -> None:
    assert labels("3 4 ; 5 6") == [1, 1]
    assert labels("5 6 ; 3 7 ; 3 4") == [1, 0, 1]
    assert labels("3 4 ; ; 9") == [1, None, 0]


def test_another_answer_gives_other_labels() -> None:
    assert labels("3 4 ; 5 6", replace(PROBLEM, answer="5 6")) == [0, 1]


def test_it_is_a_part_of_the_slot() -> None:
    assert parts("labels")["facts"] is FactLabels and not FactLabels().needs_references
