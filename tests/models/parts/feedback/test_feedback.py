"""Feedback in words: the remarks on workings and verdicts, and the rewards of the tokens that they concern."""

import pytest
import torch

from models.method.attempt import Attempt
from models.method.feedback import Feedback, Remark, RemarkSpan
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.feedback.facts import FactsFeedback
from models.parts.feedback.verdict import VerdictFeedback
from models.parts.feedback.working import WorkingFeedback, read_problem
from models.parts.rewards.judges.followed_feedback import FollowedFeedback, taken_in
from models.parts.rewards.judges.span_feedback import SpanFeedback, signs
from models.text.token_places import token_places
from tests.support.malformed_texts import malformed, rollout
from tests.support.tiny_resources import CODEC, make_resources

PROMPT = "Start with 7 . Add 5 . Take away 3 . Double it ."
PROBLEM = Problem("p", PROMPT, "18")
SOUND = "7 + 5 = 12 ; 12 - 3 = 9 ; 9 * 2 = 18 ; #### 18"


def remark(feedback: Feedback, text: str, problem: Problem = PROBLEM) -> Remark:
    return feedback([Attempt(problem, text, True)])[0]


def phrases(text: str, given: Remark) -> list[tuple[str, int]]:
    return [(text[span.start : span.stop].strip(), span.sign) for span in given.spans]


def test_a_sound_working_is_praised_step_by_step() -> None:
    given = remark(WorkingFeedback(sound="good"), SOUND)
    assert given.text == "good"
    assert phrases(SOUND, given) == [(step, 1) for step in SOUND.split(" ; ")]


def test_the_first_wrong_step_is_blamed_named_and_mended_and_what_follows_from_it_is_let_be() -> None:
    text = "7 + 5 = 12 ; 12 - 3 = 8 ; 8 * 2 = 16 ; #### 16"
    given = remark(WorkingFeedback(flawed="{number}: {step}"), text)
    assert given.text == "2: 12 - 3 = 9"
    assert phrases(text, given) == [("7 + 5 = 12", 1), ("12 - 3 = 8", -1)]


@pytest.mark.parametrize(
    ("text", "said", "about"),
    [
        ("7 + 5 = 12 ; #### 12", "2: 12 - 3 = 9", [("7 + 5 = 12", 1), ("#### 12", -1)]),  # answers too early
        ("7 + 5 = 12", "2: 12 - 3 = 9", [("7 + 5 = 12", 1)]),  # stops after the first step
        ("", "1: 7 + 5 = 12", []),
        (SOUND.replace("#### 18", "#### 9"), "4: #### 18", [*[(s, 1) for s in SOUND.split(" ; ")[:3]], ("#### 9", -1)]),
        (f"{SOUND} ; #### 3", "4: #### 18", [*[(s, 1) for s in SOUND.split(" ; ")], ("#### 3", -1)]),  # a second answer
    ],
)
def test_a_working_that_ends_early_late_or_elsewhere(text: str, said: str, about: list[tuple[str, int]]) -> None:
    given = remark(WorkingFeedback(flawed="{number}: {step}"), text)
    assert given.text == said and phrases(text, given) == about


@pytest.mark.parametrize("prompt", ["", "What is 2 + 2 ?", "Start with 7 .", "Start with x . Add 5 .", PROMPT + " Add"])
def test_of_another_prompt_nothing_is_said(prompt: str) -> None:
    assert read_problem(prompt) is None
    assert remark(WorkingFeedback(), SOUND, Problem("p", prompt, "18")) == Remark("")


def test_a_problem_is_read_as_it_was_written() -> None:
    for prompt in (PROMPT, "Start with 20 . Double it .", "Start with 1 . Take away 9 . Double it . Add 3 ."):
        read = read_problem(prompt)
        assert read is not None and read.prompt == prompt


def test_a_verdict_is_about_the_whole_answer() -> None:
    verdict = VerdictFeedback(right="yes {answer}", wrong="no {answer}")
    assert remark(verdict, SOUND) == Remark("yes 18", (RemarkSpan(0, len(SOUND), 1),))
    assert remark(verdict, "#### 17") == Remark("no 18", (RemarkSpan(0, 7, -1),))
    assert remark(verdict, "") == Remark("no 18")
    assert verdict([Attempt(PROBLEM, SOUND, False)])[0].text == "no 18"  # an attempt that was cut


def sampled(text: str) -> Rollout:
    (ids,) = CODEC.completions([text])
    return Rollout(Problem("p", "Start with 4 . Add 3 . Add 1 .", "8"), 0, tuple(ids), None, text, True)


def test_tokens_have_the_sign_of_the_phrase_that_they_stand_in_and_the_end_has_none() -> None:
    """In the first text, the second step is wrong and the answer follows from it. `;` does not belong to a step."""
    texts = ["4 + 3 = 7 ; 7 + 1 = 9 ; #### 9", "4 + 3 = 7 ; 7 + 1 = 8 ; #### 8"]
    rows = SpanFeedback(feedback=WorkingFeedback()).tokens(make_resources(), [sampled(text) for text in texts])
    assert rows[0].tolist() == [1.0] * 5 + [0.0] + [-1.0] * 5 + [0.0] + [0.0, 0.0] + [0.0]
    assert rows[1].tolist() == [1.0] * 5 + [0.0] + [1.0] * 5 + [0.0] + [1.0, 1.0] + [0.0]


def test_a_verdict_pays_every_token_alike() -> None:
    texts = ["#### 8", "4 + 3 #### 7"]
    values = SpanFeedback(feedback=VerdictFeedback())(make_resources(), [sampled(text) for text in texts])
    assert values.tolist() == [2.0, -5.0]


def test_a_token_that_touches_a_phrase_belongs_to_it_and_an_empty_one_to_none() -> None:
    spans = Remark("", (RemarkSpan(5, 7, -1), RemarkSpan(0, 3, 1)))
    places = [range(2), range(2, 4), range(4, 4), range(4, 5), range(6, 9), range(9, 9)]
    assert signs(spans, places).tolist() == [1.0, 1.0, 0.0, 0.0, -1.0, 0.0]


def test_tokens_are_placed_where_their_text_stands() -> None:
    text = "4 + 3 = 7 ; #### 7"
    (ids,) = CODEC.completions([text])
    (places,) = token_places(CODEC, [ids], [text])
    assert [text[place.start : place.stop] for place in places] == [*text.split(), ""]


def test_malformed_texts_have_a_defined_value_for_every_token() -> None:
    for problem in (PROBLEM, Problem("p", "\x00\ud800", ""), Problem("p", "Start with " * 9999, "7")):
        made = malformed(problem)
        for feedback in (WorkingFeedback(), VerdictFeedback()):
            rows = SpanFeedback(feedback=feedback).tokens(make_resources(), made)
            assert all(len(row) == len(each.completion) for row, each in zip(rows, made, strict=True))
            assert all(bool(torch.isfinite(row).all()) and float(row.abs().max()) <= 1.0 for row in rows)
        assert not FollowedFeedback()(make_resources(), made).any()


def test_feedback_is_taken_in_by_its_runs_of_words() -> None:
    assert taken_in("a b c", "x a b c y", 4) == 1.0
    assert taken_in("a b c", "c b a", 4) == pytest.approx((1.0 + 0.0 + 0.0) / 3)
    assert taken_in("a b c", "a b d", 2) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert taken_in("a a", "a", 1) == 0.5  # a repeated word counts each time
    assert taken_in("", "anything", 4) == taken_in("a", "", 4) == 0.0


def test_only_a_finished_refinement_follows_feedback() -> None:
    from dataclasses import replace

    refined = replace(rollout("9 + 1", PROBLEM), source=replace(rollout("9 + 1", PROBLEM).source, feedback="9 + 1"))
    given = [refined, replace(refined, finished=False), replace(refined, source=replace(refined.source, feedback=""))]
    assert FollowedFeedback()(make_resources(), given).tolist() == [1.0, 0.0, 0.0]


def test_wrong_and_missing_facts_are_named_where_they_are() -> None:
    seen = Problem("p", "describe", "red square topleft ; blue circle topright")
    text = "red square topleft ; blue cross topright ; red square topleft"
    given = remark(FactsFeedback(), text, seen)
    assert given.text == "wrong blue cross topright missing blue circle topright"
    assert phrases(text, given) == [("red square topleft", 1), ("blue cross topright", -1), ("red square topleft", 1)]
    assert remark(FactsFeedback(), "blue circle topright ; red square topleft", seen).text == "right"
    nothing = remark(FactsFeedback(), "", seen)
    assert nothing == Remark("missing red square topleft ; blue circle topright")
    assert remark(FactsFeedback(missing="{facts}", between=" , "), " ; ", seen).text == seen.answer.replace(";", ",")


def test_feedback_on_facts_reads_texts_of_any_form() -> None:
    remarks = FactsFeedback()([Attempt.of(each) for each in malformed(PROBLEM)])
    assert all(each.text for each in remarks)
