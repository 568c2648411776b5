"""Labels by a right solution, and labels on which this method and the Monte-Carlo method agree."""

import math

import pytest
import torch

from models.answers.exact import by_answer
from models.engines.engine import Sampling
from models.method.problem import Problem
from models.parts.labels.consensus import Consensus, first_wrong
from models.parts.labels.monte_carlo import MonteCarlo
from models.parts.labels.reference import ReferenceAgreement, agreement_labels, aligned
from models.reward_models.solutions import LabellingTools, Solution
from tests.support.tiny_engines import Saying
from tests.support.tiny_resources import CODEC

PROBLEM = Problem("p", "3 + 4", "9", tokens=tuple(CODEC.prompts(["3 + 4"])[0]))
RIGHT = "3 + 4 = 7 ; 7 + 2 = 9 ; #### 9"
NAN = math.nan


def bench(answer: str = "#### 9", references: dict[str, str] | None = None) -> LabellingTools:
    """Return labelling tools with a policy that answers `answer`, or 8 if the text so far contains an 8."""
    engine = Saying(CODEC, lambda words, seed: "#### 8" if "8" in words else answer)
    known = {PROBLEM.prompt: RIGHT} if references is None else references
    return LabellingTools(engine, CODEC, by_answer, Sampling(max_tokens=40), ("\n", ";"), 0, known)


def solution(text: str) -> Solution:
    (made,) = bench().read([PROBLEM], [tuple(CODEC.completions([text])[0])], [True])
    return made


def said(labels: torch.Tensor) -> list[float | None]:
    return [None if math.isnan(label) else label for label in labels.tolist()]


@pytest.mark.parametrize(
    ("results", "labels"),
    [
        (["7", "9", "9"], [1, 1, 1]),
        (["7", "7", "9"], [1, 1, 1]),  # a repeated step is not an error
        (["9"], [1]),  # two steps in one
        (["8", "9", "9"], [0, 0, 0]),  # all steps after an error are wrong
        (["9", "7"], [1, 0]),  # out of order
        ([], []),
    ],
)
def test_results_keep_to_the_references_in_their_order(results: list[str], labels: list[float]) -> None:
    assert aligned(results, ["7", "9", "9"]) == labels


def test_a_step_without_a_number_has_no_label_and_changes_none() -> None:
    assert aligned(["7", "", "9"], ["7", "9"]) == pytest.approx([1, NAN, 1], nan_ok=True)


def test_of_a_problem_without_a_right_solution_nothing_is_said() -> None:
    made = solution(RIGHT)
    assert said(ReferenceAgreement().label(bench(), [made])[0]) == [1, 1, 1]
    assert said(ReferenceAgreement().label(bench(references={}), [made])[0]) == [None] * 3
    assert said(Consensus().label(bench(references={}), [made])[0]) == [None] * 3


def test_solutions_that_nobody_drew_from_a_policy_are_held_against_right_ones_too() -> None:
    texts = [RIGHT, "3 + 4 = 7 ; 7 + 2 = 8 ; #### 8", RIGHT]
    made = [solution(text) for text in texts]
    steps = [(prompt, each.completion, each.ends) for prompt, each in zip(["3 + 4", "3 + 4", "?"], made, strict=True)]
    rows = agreement_labels(CODEC, ("\n", ";"), steps, {"3 + 4": RIGHT})
    assert rows[:2] == [[1, 1, 1], [1, 0, 0]] and all(map(math.isnan, rows[2]))


def test_where_both_name_the_same_step_it_is_wrong_and_nothing_is_said_of_what_follows() -> None:
    (row,) = Consensus(continuations=2).label(bench(), [solution("3 + 4 = 7 ; 7 + 2 = 8 ; #### 8")])
    assert said(row) == [1.0, 0.0, None]
    assert said(Consensus(continuations=2).label(bench(), [solution(RIGHT)])[0]) == [1.0, 1.0, 1.0]


def test_a_wrong_step_from_which_continuations_end_right_is_left_out_with_its_solution() -> None:
    made = solution("3 + 4 = 6 ; 7 + 2 = 9 ; #### 9")  # the policy corrects it, so all Monte-Carlo labels are right
    assert said(MonteCarlo(kind="hard").label(bench(), [made])[0]) == [1.0, 1.0, 1.0]
    assert said(Consensus().label(bench(), [made])[0]) == [None] * 3


def test_a_judge_of_chance_confirms_few() -> None:
    many = [solution(RIGHT)] * 200
    kept = []
    for noise in (0.0, 1.0):
        rows = Consensus(continuations=1, judge_noise=noise).label(bench(), many)
        kept.append(sum(not bool(row.isnan().all()) for row in rows))
    assert kept[0] == 200 and 20 < kept[1] < 90  # a random judge agrees in one case of four


def test_the_first_wrong_step_by_hand() -> None:
    assert [first_wrong(torch.tensor(row)) for row in ([1.0, 0.0, 1.0], [1.0, NAN], [NAN, 0.0], [])] == [1, 2, 1, 0]


@pytest.mark.parametrize("text", ["", ";", "; ; ;", "= " * 300, "\x00", "9" * 5000, "-", "#### 1 . 5 . 2"])
@pytest.mark.parametrize("part", [ReferenceAgreement(), Consensus(continuations=1)], ids=["reference", "consensus"])
def test_whatever_is_said_has_a_label_or_none_a_step(text: str, part: ReferenceAgreement | Consensus) -> None:
    made = solution(text)
    (row,) = part.label(bench(), [made])
    assert len(row) == len(made.ends) and bool((row.isnan() | (row == 0) | (row == 1)).all())
