"""The reward by a judge of steps: votes and their aggregation, programs of steps, and malformed texts."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from models.base.errors import UserError
from models.method.judge import Answer
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.judges.judge_steps import FAILED, JudgeSteps, printed, source_of
from models.reward_models.process import Aggregation
from models.sandbox.sandbox import Ran
from models.sandbox.settings import SandboxSettings
from models.training.reward_call import call_reward
from tests.support.tiny_judges import MALFORMED, Scripted, resources_of
from tests.support.tiny_resources import CODEC

SANDBOX = SandboxSettings(seconds=30, workers=2)
READS = JudgeSteps(program="", template="step {step}")


def rollouts(*texts: str) -> list[Rollout]:
    made = []
    for text in texts:
        ids = tuple(CODEC.completions([text.encode("utf-8", "replace").decode()])[0])
        made.append(Rollout(Problem("p", "3 + 4", "7"), 0, ids, torch.zeros(len(ids)), text, True))
    return made


def reads(question: str, vote: int) -> str:
    """Answer yes if the question contains a 7."""
    return "#### yes" if "7" in question else "#### no"


@pytest.mark.parametrize(
    ("aggregate", "worth"), [("min", 0.0), ("product", 0.0), ("mean", 2 / 3), ("last", 1.0)]
)  # fmt: skip
def test_the_votes_on_the_steps_become_one_by_hand(aggregate: Aggregation, worth: float) -> None:
    reward = replace(READS, aggregate=aggregate)
    made = reward.reasoned(resources_of(reads), rollouts("3 + 4 = 7 ; 5 ; #### 7"))
    assert made.values.tolist() == pytest.approx([worth]) and made.reasons == ["1.00 ; 0.00 ; 1.00"]


def test_a_step_is_worth_the_share_of_the_votes_that_say_yes() -> None:
    votes = ["#### yes", "#### no", "#### yes", "?"]
    made = replace(READS, votes=4).reasoned(resources_of(lambda question, vote: votes[vote]), rollouts("7"))
    assert made.values.tolist() == pytest.approx([2 / 3])


def test_a_step_without_a_verdict_is_worth_nothing_and_a_completion_without_any_has_no_value() -> None:
    made = READS.reasoned(
        resources_of(lambda question, vote: "hm" if "5" in question else reads(question, vote)), rollouts("7 ; 5", "5")
    )
    assert made.values[0] == 0.0 and math.isnan(float(made.values[1]))
    assert made.reasons == ["1.00 ; ?", "?"] and made.watched["unread"] == pytest.approx(2 / 3)


def test_what_the_program_of_a_step_prints_goes_into_the_question() -> None:
    def says(question: str, vote: int) -> str:
        if question.startswith("program "):
            return f"#### print ( {question.rpartition(' now ')[2].partition(' =')[0]} )"
        output, _, step = question.removeprefix("output ").partition(" step ")
        return f"#### {'yes' if step.endswith(output) else 'no'}"

    here = resources_of(says)
    reward = JudgeSteps(sandbox=SANDBOX)
    made = reward.reasoned(here, rollouts("3 + 4 = 7 ; 7 + 1 = 9", "3 + 4 = 7"))
    assert made.values.tolist() == [0.0, 1.0] and made.watched == {"unread": 0.0, "program_failed": 0.0}
    assert isinstance(here.judge, Scripted) and "output 8 step 7 + 1 = 9" in here.judge.asked


def test_a_program_that_fails_is_told_as_such_and_never_raises() -> None:
    for code in ("1 / 0", "print(", "import socket; socket.create_connection(('127.0.0.1', 1))", "pass", "exit(0)"):
        said = f"```python\n{code}\n```\n#### yes"
        here = resources_of(partial(lambda said, question, vote: said, said))
        made = JudgeSteps(sandbox=SANDBOX).reasoned(here, rollouts("7"))
        assert made.watched["program_failed"] == 1.0 and made.values.tolist() == [1.0]
        assert isinstance(here.judge, Scripted) and here.judge.asked[-1].startswith(f"output {FAILED} step ")


def test_a_program_is_a_block_of_code_or_the_line_behind_the_marker() -> None:
    assert source_of(Answer("so\n```python\nprint(1)\n```\nthen\n```\nprint(2)\n```", True)) == "print(2)\n"
    assert source_of(Answer("#### print ( 1 )", True)) == "print ( 1 )"
    assert source_of(Answer("print(1)", True)) == "" and source_of(Answer("#### print(1)", False)) == ""
    assert printed(Ran(" 7\n8 ", "", 0, False, False)) == "7 8" and printed(Ran("7", "", 1, False, False)) == FAILED
    assert len(printed(Ran("9" * 9999, "", 0, False, False))) == 500


@pytest.mark.parametrize("said", ["", "#### yes", "```python\n\x00\n```", "\x00\ud800", "9" * 100_000])
def test_no_completion_and_no_answer_raises(said: str) -> None:
    given = call_reward(resources_of(lambda question, vote: said), JudgeSteps(sandbox=SANDBOX), rollouts(*MALFORMED))
    assert given.values.isfinite().all() and len(given.values) == len(MALFORMED)


def test_an_empty_completion_has_no_step_and_so_no_value() -> None:
    nothing = [Rollout(Problem("p", "3 + 4", "7"), 0, (), torch.zeros(0), "", True)]
    given = call_reward(resources_of(reads), READS, nothing)
    assert given.values.tolist() == [0.0] and given.failures == 1


def test_a_template_without_its_places_is_refused_by_its_key() -> None:
    with pytest.raises(UserError, match=r"^rewards\.judge_steps\.template: \{output\} is missing"):
        JudgeSteps(template="{step}")
    with pytest.raises(UserError, match=r"^rewards\.judge_steps\.template: \{output\} is not a placeholder"):
        JudgeSteps(program="", template="{step} {output}")
    with pytest.raises(UserError, match=r"^rewards\.judge_steps\.program: \{step\}"):
        JudgeSteps(program="{prompt}")
