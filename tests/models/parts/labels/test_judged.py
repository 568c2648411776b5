"""Labels by a judge: the question for each step, the votes of several wordings, and steps without a label."""

import math
from dataclasses import replace

import pytest

from models.answers.exact import by_answer
from models.base.errors import UserError
from models.engines.engine import Sampling
from models.method.problem import Problem
from models.parts.labels.judged import JudgedLabels, up_to_first_wrong
from models.parts.labels.monte_carlo import MonteCarlo, progress
from models.recipes.load import load_recipe
from models.reward_models.judges.steps import step_placeholders
from models.reward_models.solutions import LabellingTools, Solution
from tests.support.tiny_engines import Saying
from tests.support.tiny_judges import Scripted
from tests.support.tiny_resources import CODEC

MARKS = ("\n", ";")
PROBLEM = Problem("p", "3 + 4", "7", tokens=tuple(CODEC.prompts(["3 + 4"])[0]))
TEXT = "3 + 4 = 7 ; 7 + 1 = 9 ; #### 9"


def bench(judge: Scripted, say: str = TEXT) -> LabellingTools:
    engine = Saying(CODEC, lambda words, seed: say)
    return LabellingTools(engine, CODEC, by_answer, Sampling(max_tokens=20, samples=1), MARKS, 0, {}, judge)


def solution(work: LabellingTools, text: str = TEXT) -> Solution:
    (made,) = work.read([PROBLEM], [tuple(CODEC.completions([text])[0])], [True])
    return made


def labels(judge: Scripted, part: JudgedLabels, text: str = TEXT) -> list[float]:
    work = bench(judge)
    (row,) = part.label(work, [solution(work, text)])
    return row.tolist()


def says(**wrong: str) -> Scripted:
    """Return a judge. A step is wrong if it contains the text that `wrong` has for the question's first word."""

    def answer(question: str, vote: int) -> str:
        step = question.partition(" now ")[2]
        held = wrong.get(question.split()[0], "never")
        return f"#### {'no' if held in step else 'yes'}"

    return Scripted(answer)


def test_a_step_is_asked_about_with_what_stands_before_it_and_without_the_mark_at_its_end() -> None:
    made = solution(bench(says()))
    assert step_placeholders(CODEC, "3 + 4", made.completion, made.ends, MARKS) == [
        {"prompt": "3 + 4", "before": "none", "step": "3 + 4 = 7"},
        {"prompt": "3 + 4", "before": "3 + 4 = 7", "step": "7 + 1 = 9"},
        {"prompt": "3 + 4", "before": "3 + 4 = 7 ; 7 + 1 = 9", "step": "#### 9"},
    ]


def test_what_all_ways_say_is_the_label_up_to_the_first_wrong_step() -> None:
    agreed = says(step="7 + 1", plain="7 + 1", reverse="7 + 1")
    assert labels(agreed, JudgedLabels()) == [1.0, 0.0, pytest.approx(math.nan, nan_ok=True)]
    assert labels(says(), JudgedLabels()) == [1.0, 1.0, 1.0]


def test_the_majority_of_the_wordings_speaks_and_where_they_are_even_nobody_knows() -> None:
    even = labels(says(step="7 + 1"), JudgedLabels(reverse=""))
    assert even[0] == 1.0 and math.isnan(even[1]) and even[2] == 1.0
    third = "third {prompt} so far {before} now {step}"
    three = JudgedLabels(templates=(*JudgedLabels().templates, third), reverse="")
    assert labels(says(step="7 + 1"), three) == [1.0, 1.0, 1.0]
    assert labels(says(step="7 + 1", third="7 + 1"), three)[:2] == [1.0, 0.0]


def test_a_label_that_the_answer_does_not_bear_out_is_left_out() -> None:
    doubted = labels(says(reverse="7 + 1"), JudgedLabels())
    assert doubted[0] == 1.0 and math.isnan(doubted[1]) and doubted[2] == 1.0
    asked = says()
    labels(asked, JudgedLabels())
    assert "reverse 3 + 4 answer 7 so far none now 3 + 4 = 7" in asked.asked
    assert not any("answer 7" in question for question in asked.asked if not question.startswith("reverse"))


@pytest.mark.parametrize("said", ["", "####", "#### maybe", "\x00\ud800", "#### yes no", "9" * 100_000])
@pytest.mark.parametrize("text", ["", ";", "; ; ;", "#### ####", "= " * 300, "\x00\udcff"])
def test_whatever_is_written_and_said_has_labels(said: str, text: str) -> None:
    judge = Scripted(lambda question, vote: said)
    for each in JudgedLabels()(bench(judge, text.encode("utf-8", "replace").decode()), [PROBLEM]):
        assert len(each.labels) == len(each.ends) > 0 and all(map(math.isnan, each.labels))


def test_a_step_on_which_nobody_says_anything_has_the_label_of_the_recipe() -> None:
    silent = Scripted(lambda question, vote: "#### yes" if "7 + 1" in question else "")
    made = labels(silent, JudgedLabels(unread=0.5, reverse=""), "3 ; 5 ; 7 + 1 = 8")
    assert made == [0.5, 0.5, 1.0]


def test_behind_a_wrong_step_nothing_is_labelled() -> None:
    assert up_to_first_wrong([1.0, 0.0, 1.0]) == [1.0, 0.0, pytest.approx(math.nan, nan_ok=True)]
    assert up_to_first_wrong([1.0, 1.0]) == [1.0, 1.0] and up_to_first_wrong([]) == []


def test_settings_and_recipes_that_make_no_sense_are_refused_by_their_key() -> None:
    with pytest.raises(UserError, match=r"^reward_model\.process\.labels\.templates\.1: \{step\}"):
        JudgedLabels(templates=("{prompt} {step}", "{prompt}"))
    with pytest.raises(UserError, match=r"^reward_model\.process\.labels\.reverse: \{answer\}"):
        JudgedLabels(reverse="{prompt} {step}")
    with pytest.raises(UserError, match=r"reward_model\.process\.labels judged asks a judge"):
        load_recipe("aurora", ["judge=null"])
    with pytest.raises(UserError, match=r"judge: no part of the recipe asks one"):
        load_recipe("aurora", ["reward_model.process.labels={name: reference}"])


def test_relative_progress_by_hand() -> None:
    import torch

    # half are right after the prompt and 0.4 after step one, a ratio of 4/5; after a share of zero, no step is right
    made = progress(torch.tensor([0.5, 0.4, 0.3, 0.0, 1.0], dtype=torch.float64), 0.8)
    assert made.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert progress(torch.tensor([0.1, 0.2]), 0.8).tolist() == [1.0]


def test_progress_is_held_against_the_prompt_and_a_hard_prompt_has_right_steps_too() -> None:
    def say(words: list[str], seed: int) -> str:
        return "#### 7" if "7" in words or seed % 4 == 0 else "#### 8"

    engine = Saying(CODEC, say)
    work = replace(bench(says()), engine=engine)
    (row,) = MonteCarlo(continuations=64, kind="progress").label(work, [solution(work, "7 = 7 ; 3 = 3 ; #### 8")])
    assert row.tolist() == [1.0, 1.0, 0.0]
