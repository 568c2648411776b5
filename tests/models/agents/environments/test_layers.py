"""The environment `layers`: reward by its formula, students against a reference in loops, the best by enumeration."""

import json
from itertools import product
from random import Random

import numpy as np
import pytest

from models.agents.environments.layers import WORDS, LayerChoices, compared
from models.agents.play.teacher_network import (
    DROPPED,
    ROWS,
    AccuracyPredictor,
    BlockChoice,
    StudentScore,
    TeacherNetwork,
    pareto,
    quantised,
    teacher_network,
)
from models.agents.small_sets.larger_layers import SET as LARGER
from models.agents.small_sets.layers import SET
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer
from models.method.problem import Problem


def problem(seed: int = 17, blocks: int = 4) -> Problem:
    return Problem("p", "teacher", json.dumps({"seed": seed, "blocks": blocks}))


def play(environment: LayerChoices, turns: list[str], seed: int = 17, blocks: int = 4) -> list[EnvironmentAnswer]:
    opened = environment.open(problem(seed, blocks))
    assert opened.reset(0)[0] == ""
    return [opened.step(turn) for turn in turns]


def students(environment: LayerChoices, blocks: int = 4) -> list[list[str]]:
    return [list(words) for words in product(WORDS["drop"], repeat=blocks)]


def test_the_student_that_keeps_everything_is_the_teacher_and_earns_nothing() -> None:
    teacher = teacher_network(17, 4)
    whole = teacher.measure([BlockChoice()] * 4)
    assert whole.size == 1.0 and whole.accuracy == pytest.approx(teacher.accuracy, abs=0.03)
    assert teacher.reward(whole) == 0.0
    assert play(LayerChoices(), ["keep"] * 4)[-1][1] == 0.0


def test_the_reward_is_the_papers_by_hand() -> None:
    teacher = TeacherNetwork(3, 2)
    half = StudentScore(teacher.accuracy / 2, 0.25)
    assert teacher.reward(half) == pytest.approx(0.75 * 1.25 / 2)
    assert teacher.reward(StudentScore(teacher.accuracy, 0.0)) == 1.0


def test_a_student_is_that_of_an_independent_forward_pass_in_loops() -> None:
    teacher = teacher_network(5, 3)
    kept = (BlockChoice(), DROPPED, BlockChoice())
    rows = []
    for start in teacher._start:
        stream = list(start)
        for number in (0, 2):
            block = teacher._blocks[number]
            hidden = [
                max(0.0, sum(stream[i] * block.inward[i, unit] for i in range(len(stream))) + block.offset[unit])
                for unit in range(len(block.offset))
            ]
            added = [sum(h * block.outward[u, i] for u, h in enumerate(hidden)) for i in range(len(stream))]
            stream = [value + more for value, more in zip(stream, added, strict=True)]
        rows.append([*stream, 1.0])
    features = np.array(rows)
    penalty = np.sqrt(1e-2 * ROWS) * np.eye(features.shape[1])  # ridge as least squares with further rows
    targets = np.concatenate([teacher._logits[:ROWS], np.zeros((len(penalty), 2))])
    readout = np.linalg.lstsq(np.concatenate([features[:ROWS], penalty]), targets, rcond=None)[0]
    right = (features[ROWS:] @ readout).argmax(1) == teacher._classes[ROWS:]
    assert teacher.measure(kept).accuracy == pytest.approx(right.mean(), abs=1e-12)
    left = sum(teacher._blocks[number].weights for number in (0, 2)) + teacher._rest
    assert teacher.measure(kept).size == left / (left + teacher._blocks[1].weights)


def test_dropping_a_block_without_change_changes_no_logit() -> None:
    teacher = TeacherNetwork(5, 3)
    teacher._blocks[1].outward[:] = 0.0
    assert (
        teacher.measure([BlockChoice(), DROPPED, BlockChoice()]).accuracy
        == teacher.measure([BlockChoice(), BlockChoice(), BlockChoice()]).accuracy
    )


def test_weights_are_rounded_to_symmetric_levels() -> None:
    weights = np.array([-1.0, -0.4, 0.1, 0.6, 0.9])
    assert quantised(weights, 2).tolist() == [-1.0, 0.0, 0.0, 1.0, 1.0]
    assert quantised(weights, 32) is weights
    assert np.abs(quantised(weights, 8) - weights).max() <= 0.5 / 127 + 1e-12
    assert quantised(np.zeros(3), 4).tolist() == [0.0] * 3


def test_halves_and_bits_scale_the_size() -> None:
    teacher = teacher_network(17, 4)
    whole = teacher.measure([BlockChoice()] * 4).size
    at_eight = teacher.measure([BlockChoice(1.0, 8)] * 4).size
    rest = teacher._rest / (sum(block.weights for block in teacher._blocks) + teacher._rest)
    assert at_eight == pytest.approx(rest + (whole - rest) / 4)
    assert teacher.measure([BlockChoice(0.5)] * 4).size == pytest.approx(rest + (whole - rest) / 2)


def test_the_enumerated_best_choices_reach_the_goal_and_random_choices_hardly_ever() -> None:
    environment, random = LayerChoices(), Random(4)
    solved: list[bool] = []
    for seed in range(20):
        results = {tuple(words): play(environment, words, seed)[-1] for words in students(environment)}
        best = max(results.values(), key=lambda answer: answer[1])
        assert best[4]["solved"] and best[1] == compared(seed, 4, ("drop",)).best
        solved += [bool(results[tuple(random.choice(WORDS["drop"]) for _ in range(4))][4]["solved"]) for _ in range(10)]
    assert sum(solved) / len(solved) < 0.2


def test_of_a_dropped_block_nothing_further_is_asked() -> None:
    environment = LayerChoices(asks=("drop", "width", "bits"))
    answers = [answer[0] for answer in play(environment, ["drop", "keep", "half", "4"], blocks=2)]
    assert answers[:3] == ["2", "width 2", "bits 2"] and answers[3].startswith("accuracy ")
    assert play(environment, ["drop", "drop"], blocks=2)[-1][2]


def test_an_unreadable_turn_is_answered_and_changes_nothing() -> None:
    answers = play(LayerChoices(), ["leave", " drop\n", "keep", "keep", "drop"])
    assert answers[0][:4] == ("error: keep, drop", 0.0, False, False)
    assert answers[-1] == play(LayerChoices(), ["drop", "keep", "keep", "drop"])[-1]
    assert answers[0][4]["actions"] == ("keep", "drop")


def test_the_predictor_is_exact_if_accuracy_is_a_sum_over_blocks_and_all_is_measured() -> None:
    class Additive(TeacherNetwork):
        def measure(self, choices: object) -> StudentScore:
            assert isinstance(choices, tuple)
            return StudentScore(sum(0.1 * (n + 1) * choice.share for n, choice in enumerate(choices)), 1.0)

    options = (DROPPED, BlockChoice(0.5), BlockChoice())
    every = list(product(options, repeat=3))
    teacher = Additive(1, 3)
    predictor = AccuracyPredictor(teacher, every, len(every))
    assert [predictor(each) for each in every] == pytest.approx(
        [teacher.measure(each).accuracy for each in every], abs=1e-3
    )


def test_predictions_of_a_quarter_of_the_students_rank_the_others() -> None:
    correlations = []
    for seed in range(8):
        teacher = teacher_network(seed, 4)
        every = list(product((DROPPED, BlockChoice(1.0, 8), BlockChoice(1.0, 4), BlockChoice(1.0, 2)), repeat=4))
        predictor = AccuracyPredictor(teacher, every, 64)
        pairs = np.array([(predictor(each), teacher.measure(each).accuracy) for each in every])
        correlations.append(np.corrcoef(pairs.T.argsort(1).argsort(1))[0, 1])
    assert np.mean(correlations) > 0.5


def test_a_predictor_changes_the_reward_and_not_the_goal() -> None:
    words = ["drop", "keep", "drop", "keep"]
    measured, predicted = play(LayerChoices(), words)[-1], play(LayerChoices(predictor=8), words)[-1]
    assert measured[1] != predicted[1] and (measured[0], measured[4]) == (predicted[0], predicted[4])


def test_the_front_is_that_of_comparing_all_pairs() -> None:
    random = Random(2)
    points = [StudentScore(random.randrange(8) / 8, random.randrange(8) / 8) for _ in range(60)]

    def surpassed(point: StudentScore) -> bool:
        return any(other.accuracy >= point.accuracy and other.size <= point.size and other != point for other in points)

    assert {points[index] for index in pareto(points)} == {point for point in points if not surpassed(point)}
    sizes = [points[index].size for index in pareto(points)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("", "problem p: the answer is none of environment layers"),
        ('{"seed": 1, "blocks": 0}', "problem p: the answer is none of environment layers \\(blocks"),
        ('{"seed": 1, "blocks": 12}', "problem p: 12 blocks have 16777216 students, and at most 4096 are compared"),
    ],
)
def test_a_problem_that_does_not_fit_is_refused_in_a_line(answer: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        LayerChoices(asks=("drop", "bits")).open(Problem("p", "", answer))


def test_a_kind_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UserError, match="asks: drop, drop has a kind twice"):
        LayerChoices(asks=("drop", "drop"))


def test_prompts_of_both_sizes_of_teachers_have_the_same_form() -> None:
    for small, blocks in ((SET, 4), (LARGER, 5)):
        task = small.draw(Random(0))
        assert task.prompt.count(" w ") == blocks and json.loads(task.answer)["blocks"] == blocks
