"""The reward `in_form`: another reward where the whole completion has a form, and nothing elsewhere."""

import pytest
import torch

from models.base.errors import UserError
from models.method.registry import parts
from models.parts.rewards.shaping.in_form import LONGEST, InForm
from tests.support.malformed_texts import malformed, rollout
from tests.support.tiny_judges import rollouts
from tests.support.tiny_resources import make_resources

HERE = make_resources()
STEPS = r"\w+ \w+( ; \w+ \w+)* #### \w+"


def test_form_and_answer_are_one_verdict() -> None:
    texts = (
        "red square #### 1",
        "red square ; blue circle #### 2",
        "#### 1",
        "red square #### 1 2",
        " red cross #### 3\n",
    )
    made, right = rollouts(*texts), torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])
    reward = InForm(of="choice", pattern=STEPS)
    assert reward.blend(HERE, made, {"choice": right}).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert reward.watched(made, {"choice": right}) == {"share": 3 / 5}
    assert reward.made_of == ("choice",)


def test_the_form_alone_is_worth_one() -> None:
    made = rollouts("<think> 1\n2 </think> 3", "<think> 1 </think>", "1 <think> 2 </think> 3", "3")
    assert InForm()(HERE, made).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert InForm().made_of == ()


def test_a_completion_that_was_cut_or_is_too_long_has_no_form() -> None:
    problem = rollouts("x")[0].problem
    texts = [
        rollout("1", problem, finished=False),
        *(rollout("1" * length, problem) for length in (LONGEST, LONGEST + 1)),
    ]
    assert InForm(pattern=r"1+")(HERE, texts).tolist() == [0.0, 1.0, 0.0]


def test_a_broken_pattern_and_a_missing_reward_are_refused() -> None:
    with pytest.raises(UserError, match=r"rewards\.in_form\.pattern: '\(' is not a regular expression"):
        InForm(pattern="(")
    with pytest.raises(UserError, match="reward in_form: no reward before it is called choice; there are coin"):
        InForm(of="choice").blend(HERE, rollouts("1"), {"coin": torch.zeros(1)})


def test_it_is_a_part_of_the_slot_and_reads_texts_of_any_form() -> None:
    assert parts("rewards")["in_form"] is InForm
    values = InForm(pattern=STEPS)(HERE, malformed(rollouts("x")[0].problem))
    assert set(values.tolist()) == {0.0}
