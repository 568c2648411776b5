"""Verdicts of judges: scores, choices and rankings read from answers, templates, and comparisons in both orders."""

import math
import random

import pytest

from models.base.errors import UserError
from models.method.judge import Answer
from models.reward_models.judges.pairs import CompletionPair, certainty, compare
from models.reward_models.judges.question import check_template, fill
from models.reward_models.judges.verdict import choice, judged_steps, ranking, score, verdict
from tests.support.tiny_judges import Scripted


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("fine ; #### 9", 1.0), ("#### 0", 0.0), ("#### 4.5", 0.5), ("so \\boxed{3}", 1 / 3), ("The answer is 9.", 1.0),
        ("#### 2 ; no : \n#### 9", 1.0),
        # The critique quotes the answer of the completion.
        ("it says\n#### 9\nwhich is wrong: \\boxed{3}", 1 / 3), ("it says \\boxed{9} ; #### 0", 0.0),
        ("#### \\boxed{3}", 1 / 3), ("it says\n#### 9\nso \\boxed{", None),
        ("#### 10", None), ("#### -1", None), ("#### nine", None), ("#### 9 or 8", None), ("#### 9/9", None),
        ("#### 1e0", None), ("#### ９", 1.0), ("#### nan", None), ("#### inf", None), ("9", None), ("", None),
        ("####", None), ("#### 9 9", None), ("#### " + "9" * 100_000, None), ("\x00\ud800####\x00", None),
    ],
)  # fmt: skip
def test_a_score_is_a_plain_number_within_its_bounds_or_none(text: str, worth: float | None) -> None:
    read = score(Answer(text, True), 0.0, 9.0)
    assert read == (None if worth is None else pytest.approx(worth))
    assert score(Answer(text, False), 0.0, 9.0) is None  # cut, so 1 may be the beginning of 10


def test_a_choice_is_one_of_the_words_and_a_ranking_holds_each_completion_once() -> None:
    words = ("first", "second")
    assert [choice(Answer(f"#### {said}", True), words) for said in ("first", "SECOND", "third", "first second")] == [
        0, 1, None, None,
    ]  # fmt: skip
    assert choice(Answer("first", True), words) is None and choice(Answer("#### first", False), words) is None
    rankings = {"2 1 3": [1, 0, 2], "2 > 1 > 3": [1, 0, 2], "3,1,2": [2, 0, 1]}
    assert {said: ranking(Answer(f"x #### {said}", True), 3) for said in rankings} == rankings
    for said in ("1 2", "1 2 2", "0 1 2", "1 2 4", "a b c", "1 2 3 4", "1 > 2 = 3", "²1 3", "1 2 3" + " 3" * 9999):
        assert ranking(Answer(f"#### {said}", True), 3) is None


def test_nothing_that_a_judge_writes_raises() -> None:
    draw = random.Random(0)
    for _ in range(500):
        answer = Answer("".join(draw.choices("#### 123>,.\\boxed{}\x00\n\ud800é answer is", k=40)), True)
        verdict(answer), score(answer, 0.0, 9.0), choice(answer, ("first",)), ranking(answer, 2)


def test_what_is_filled_in_is_not_read_as_a_template() -> None:
    filled = fill("judge {prompt} : {completion} {other}", {"prompt": "{completion}", "completion": "{prompt} {x}"})
    assert filled == "judge {completion} : {prompt} {x} {other}"


def test_a_template_without_its_places_or_with_others_is_refused_by_its_key() -> None:
    check_template("{a} {b}", {"a"}, "rewards.j.template", frozenset({"b"}))
    with pytest.raises(UserError, match=r"^rewards\.j\.template: \{a\} is missing from the template$"):
        check_template("{b}", {"a"}, "rewards.j.template", frozenset({"b"}))
    unknown = r"^rewards\.j\.template: \{c\} is not a placeholder of this template; it takes \{a\}$"
    with pytest.raises(UserError, match=unknown):
        check_template("{a} {c}", {"a"}, "rewards.j.template")


PAIR = CompletionPair("p", "good", "bad", {})
TEMPLATE = "{prompt} | {first} | {second}"


def test_the_swap_takes_away_whatever_a_judge_owes_to_the_place() -> None:
    first = compare(Scripted(lambda question, vote: "#### first"), TEMPLATE, [PAIR])[0]
    assert (first.preference, first.place, first.unread) == (0.5, 1.0, 0)
    fair = Scripted(lambda question, vote: "#### first" if question.endswith("bad") else "#### second")
    made = compare(fair, TEMPLATE, [PAIR])[0]
    assert (made.preference, made.place) == (1.0, 0.5)
    assert fair.asked == ["p | good | bad", "p | bad | good"]
    alone = compare(Scripted(lambda question, vote: "#### first"), TEMPLATE, [PAIR], swap=False)[0]
    assert (alone.preference, alone.place) == (1.0, None)


def test_a_preference_is_the_mean_of_the_votes_of_both_orders_by_hand() -> None:
    said = {0: "#### first", 1: "#### neither", 2: "so what"}
    judge = Scripted(lambda question, vote: said[vote] if question.endswith("bad") else "#### second")
    made = compare(judge, TEMPLATE, [PAIR], votes=3)[0]
    # Good first: of three votes, 1 and 1/2 can be read. Bad first: good wins all three.
    assert made.preference == pytest.approx((0.75 + 1.0) / 2) and made.unread == 1


def test_an_order_without_a_verdict_leaves_no_preference() -> None:
    judge = Scripted(lambda question, vote: "#### first" if question.endswith("bad") else "?")
    made = compare(judge, TEMPLATE, [PAIR], votes=2)[0]
    assert (made.preference, made.place, made.unread) == (None, None, 2)


def test_a_verdict_counts_by_how_likely_its_words_are_where_that_is_asked() -> None:
    sure, unsure = Answer("#### first", True, (0.0, 0.0)), Answer("#### second", True, (math.log(0.5), math.log(0.125)))
    judge = Scripted(lambda question, vote: sure if question.endswith("bad") else unsure)
    plain = compare(judge, TEMPLATE, [PAIR])[0]
    weighed = compare(judge, TEMPLATE, [PAIR], by_likelihood=True)[0]
    # The geometric mean of 1/2 and 1/8 is 1/4, so the vote counts 1/2 - 1/2 * 1/4 for the first place.
    assert plain.preference == 1.0 and list(weighed.backward) == pytest.approx([0.375])
    assert weighed.preference == pytest.approx((1.0 + 0.625) / 2)
    assert certainty(Answer("x", True)) == 1.0 and certainty(Answer("x", True, (0.3,))) == 1.0


def test_steps_are_judged_by_the_last_word_of_what_is_said_of_each() -> None:
    said = "7 + 5 = 12 right ; so it goes ;; 12 - 3 = 8 WRONG.\nStep 3: **Correct**\nbrighter ; ; #### 9"
    assert judged_steps(Answer(said, True)) == [True, False, True]
    assert judged_steps(Answer(said, False)) == judged_steps(Answer("", True)) == []
    odd = "\x00 ; \ud800 right ;" * 20_000
    assert judged_steps(Answer(odd, True)) == [True] * 20_000
