"""The reward `choice`: reading of an option or a class, hostile texts, and the demonstrations of its data sets."""

import random
from collections import Counter

import pytest
import torch

from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.rules.choice import LONGEST, Choice
from models.task_sets.drawing import make_rows
from models.task_sets.options import OptionsSettings
from models.task_sets.topics import WORDS, TopicsSettings
from tests.support.tiny_resources import make_resources

CLASSES = Choice(labels=("sport", "home news", "sport news"), reads="whole")


def values(reward: Choice, answer: str, *texts: str, finished: bool = True) -> list[float]:
    problem = Problem("p", "", answer)
    rollouts = [Rollout(problem, 0, (5,), torch.zeros(1), text, finished) for text in texts]
    return reward(make_resources(), rollouts).tolist()


def test_a_label_in_any_of_its_dresses_is_the_option_and_no_other_is() -> None:
    dresses = [
        "#### B", "#### b", "#### (B)", "#### [B]", "#### B)", "#### B.", "#### B) 12", "#### B: 12", "#### **B**",
        "\\boxed{B}", "The answer is B.", "Answer: (B) twelve", "#### option B",
        "#### Choice (B)", "no, not A ; #### B", "#### A\n#### B",
    ]  # fmt: skip
    for right, worth in (("B", 1.0), ("C", 0.0)):
        assert values(Choice(), right, *dresses) == [worth] * len(dresses)


def test_what_names_no_option_or_two_is_wrong() -> None:
    doubtful = [
        "", "B", "it is B", "####", "#### 12", "#### Bees", "#### B or C", "#### B, C", "#### B and C", "#### (B)(C)",
        "#### B) 12 or C) 13", "#### B) 12 or C", "#### B/C", "#### not B", "#### a dog", "#### B C", "#### A to B",
    ]  # fmt: skip
    for right in "ABC":
        assert values(Choice(), right, *doubtful) == [0.0] * len(doubtful)
    assert values(Choice(), "B", "#### B) 12, so B") == [1.0]  # the same option twice is not ambiguous


def test_an_option_that_is_not_among_the_labels_is_none() -> None:
    assert values(Choice(labels=("A", "B")), "C", "#### C") == [0.0]


def test_a_completion_that_was_cut_names_nothing() -> None:
    assert values(Choice(), "B", "#### B", finished=False) == [0.0]
    assert values(CLASSES, "sport", "sport", finished=False) == [0.0]


def test_a_class_is_the_whole_completion_in_any_case_and_nothing_beside_it() -> None:
    said = ["sport", " Sport\n", "SPORT.", "`sport`", "sport news", "sport: it is about football", "#### sport", ""]
    assert values(CLASSES, "sport", *said) == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert values(CLASSES, "Sport News", "sport  news") == [1.0]


def test_the_last_word_is_the_label_whether_or_not_a_working_precedes_it() -> None:
    reward = Choice(labels=("red", "blue"), reads="last")
    texts = ("red", "a blue square #### red", "RED.", "<think>blue</think> red", "red blue", "red or", "", "<think>red")
    assert values(reward, "red", *texts) == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert values(reward, "red", "red", finished=False) == [0.0]


def test_of_names_that_begin_alike_the_longer_is_read_where_it_stands() -> None:
    reward = Choice(labels=("sport", "sport news"))
    assert values(reward, "sport news", "#### sport news", "#### (sport news)", "#### sport") == [1.0, 1.0, 0.0]


def test_signs_of_a_regular_expression_in_a_label_are_letters_like_others() -> None:
    assert values(Choice(labels=("[a-z]+", "(")), "[a-z]+", "#### [a-z]+", "#### x") == [1.0, 0.0]


def test_evaluations_decide_as_the_reward_does() -> None:
    attempts = [Attempt(Problem("p", "", "B"), text, True) for text in ("#### (b)", "#### C", "")]
    assert Choice().right(attempts) == [True, False, False]


@pytest.mark.parametrize("labels", [(), ("A", "a"), ("A", " "), ("", "B")])
def test_labels_that_cannot_be_told_apart_are_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"rewards\.choice\.labels: .*are not different names"):
        Choice(labels=labels)


@pytest.mark.parametrize("reward", [Choice(), CLASSES], ids=["answer", "whole"])
def test_no_text_whatever_raises_and_none_of_it_is_worth_other_than_one_or_zero(reward: Choice) -> None:
    chance = random.Random(3)
    pieces = ["####", "(", ")", "[", "B", "b", "C", " ", "\n", ".", ":", "or", "option ", "\\boxed{", "\x00", "\ud800"]
    pieces += ["İ", "\u0301", "sport", "home news", "9" * 5000]
    texts = ["".join(chance.choices(pieces, k=chance.randint(0, 10))) for _ in range(1000)]
    texts += ["#### " + piece * (300_000 // len(piece)) for piece in ("B", "(", "B) ", "or ", " ", "option ", "[B")]
    assert set(values(reward, "B", *texts)) <= {0.0, 1.0}
    assert values(Choice(), "B", "#### B) " + "x" * LONGEST) == [0.0]


def test_a_text_bears_on_two_topics_most_on_its_own_and_mislabelled_demonstrations_name_the_other() -> None:
    settings = TopicsSettings(
        problems={"train": 40, "validation": 5, "gate": 5}, demonstrations={"train": 200}, main=4, second=2, common=2,
        mislabelled=0.4,
    )  # fmt: skip
    rows = make_rows(settings)
    answers = {str(row["prompt"]): str(row["answer"]) for row in rows["problems"]["train"]}
    reward = Choice(labels=tuple(WORDS), reads="whole")
    counts: dict[str, Counter[str]] = {}
    for text, topic in answers.items():
        counts[text] = Counter(name for name, words in WORDS.items() for word in text.split() if word in words)
        assert counts[text][topic] == 4 and sorted(counts[text].values()) == [2, 4] and len(text.split()) == 8
    shown = rows["demonstrations"]["train"]
    assert {row["flaw"] for row in shown} == {"none", "mislabelled"}
    for row in shown:
        text, label = str(row["prompt"]), str(row["completion"])
        assert values(reward, answers[text], label) == [float(row["flaw"] == "none")] and label in counts[text]


def test_the_option_that_is_right_holds_the_result_and_flawed_demonstrations_name_another() -> None:
    settings = OptionsSettings(
        problems={"train": 60, "validation": 10, "gate": 10}, demonstrations={"train": 300}, start=(1, 20),
        operand=(1, 9), levels=[1, 2, 3], bounds=(5, 12, 22), guessed=0.4, misread=0.4,
    )  # fmt: skip
    ranges = {"A": range(-99, 5), "B": range(5, 12), "C": range(12, 22), "D": range(22, 999)}
    rows = make_rows(settings)
    for row in rows["problems"]["train"]:
        words, _, options = str(row["prompt"]).rpartition(" . ")
        assert options == "A below 5 B 5 to 11 C 12 to 21 D 22 or more"
        value = int(words.split()[2])
        for step in words.split(" . ")[1:]:
            number = int(step.split()[-1]) if step.split()[-1].isdigit() else 0
            value = value * 2 if "Double" in step else value + (number if "Add" in step else -number)
        assert [label for label, values in ranges.items() if value in values] == [row["answer"]]
    shown = rows["demonstrations"]["train"]
    assert {row["flaw"] for row in shown} == {"none", "guessed", "misread"}
    for row in shown:
        [worth] = values(Choice(), str(row["answer"]), str(row["completion"]))
        assert worth == (row["flaw"] == "none") and (" = " in str(row["completion"])) == (row["flaw"] != "guessed")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"bounds": (5, 5, 9)}, "bounds: 5, 5 and 9 do not ascend"),
        ({"start": (3, 2)}, "start: 3 to 2 is not a range"),
        ({"operand": (0, 2)}, "operand: 0 to 2 is not a range"),
        ({"levels": []}, "levels: at least one is required"),
    ],
)
def test_settings_that_no_problem_has_are_refused(changed: dict[str, object], says: str) -> None:
    sound = {"problems": {}, "start": (1, 9), "operand": (1, 9), "levels": [1], "bounds": (5, 7, 9)}
    with pytest.raises(ValueError, match=says):
        OptionsSettings.model_validate({**sound, "guessed": 0.5, "misread": 0.5, **changed})


def test_a_right_label_has_the_worth_of_its_class() -> None:
    reward = Choice(labels=("keep on", "stop"), reads="whole", worth={"Stop": 2.5})
    assert values(reward, "stop", "stop", "keep on") == [2.5, 0.0]
    assert values(reward, "keep on", "stop", "Keep  on") == [0.0, 1.0]
    assert reward.right([Attempt(Problem("p", "", "stop"), "stop", True)]) == [True]
    with pytest.raises(UserError, match=r"rewards\.choice\.worth: 'go' is none of its labels"):
        Choice(labels=("stop",), worth={"go": 2.0})
