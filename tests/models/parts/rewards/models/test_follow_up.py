"""The likelihood of a user's next message as a reward: by hand, with a fitted judge, and for any text."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.method.judge import Answer, GenerativeJudge
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.models.follow_up import FollowUp, follow_up_value
from models.policies.build import load_causal_model
from models.recipes.load import load_recipe
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.settings import JudgeSettings
from models.task_sets.follow_ups import DISPLEASED, PLEASED, TALK, FollowUpsSettings
from tests.support.tiny_judges import save_judge
from tests.support.tiny_resources import CODEC, make_resources


class Telling(GenerativeJudge):
    """A judge whose likelihoods depend on a text's length and on the number of sevens in the question."""

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        raise AssertionError("nothing is to be written")

    def likelihoods(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float] | None]:
        return [
            None if "long" in asked else [-len(text) * (1 + asked.count("7")) for text in texts] for asked in questions
        ]


class Writing(GenerativeJudge):
    """A judge that writes, but returns no likelihoods, as a judge at an address does."""

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        return [[Answer("", True)] * votes for _ in questions]


def rollout(text: str, finished: bool = True) -> Rollout:
    return Rollout(Problem("p", "1 + 2 =", "3", tokens=(5,)), 0, (5, 6), None, text, finished)


def judged_by(judge: GenerativeJudge) -> RunResources:
    return replace(make_resources(), judge=judge)


REWARD = FollowUp(pleased=("ab", "abcd"), displeased=("a",))


def test_the_value_is_the_mean_of_the_one_kind_less_that_of_the_other() -> None:
    assert follow_up_value([-1.0, -3.0, -0.5], 2) == pytest.approx(-2.0 + 0.5)
    values = REWARD(judged_by(Telling()), [rollout("3"), rollout("7")])
    assert values.tolist() == pytest.approx([-3 + 1, -6 + 2])
    turned = FollowUp(pleased=REWARD.displeased, displeased=REWARD.pleased)
    assert turned(judged_by(Telling()), [rollout("3")]).tolist() == pytest.approx([2.0])


def test_one_that_was_cut_is_worth_no_more_than_the_worst_and_one_too_long_has_no_value() -> None:
    values = REWARD(judged_by(Telling()), [rollout("3", finished=False), rollout("7"), rollout("long"), rollout("3")])
    assert values[:2].tolist() == [-4.0, -4.0] and math.isnan(float(values[2])) and float(values[3]) == -2.0


TEXTS = ["", " ", "{prompt}", "\x00\ud800", "7" * 100_000, "#### 3", "\u202e\n\t" * 50]


@pytest.mark.parametrize("text", TEXTS)
def test_whatever_is_said_has_a_value_or_none_and_no_error(text: str, tmp_path: Path) -> None:
    judge = LocalJudge(save_judge(tmp_path / "user", {"1 + 2 = 3": "7"}, steps=1), JudgeSettings(), 0)
    reward = FollowUp(template="{prompt} {completion}", pleased=("3 4",), displeased=("9",))
    values = reward(judged_by(judge), [rollout(text), rollout("3")])
    judge.close()
    assert values.shape == (2,) and not values.isinf().any() and bool(values[1].isfinite())


def test_a_models_likelihoods_are_those_of_its_plain_forward_pass(tmp_path: Path) -> None:
    folder = save_judge(tmp_path / "user", {"1 + 2 =": "3", "4 + 5 =": "9"}, steps=2)
    judge = LocalJudge(folder, JudgeSettings(), 0)
    questions, texts = ["4 + 5 =", "1 + 2 =", "4 + 5 ="], ["3", "9 9"]
    rows = judge.likelihoods(questions, texts)
    model = load_causal_model(folder, torch.float32).eval()
    for question, row in zip(questions, rows, strict=True):
        assert row is not None
        for text, value in zip(texts, row, strict=True):
            (prompt,), (answer,) = CODEC.prompts([question]), CODEC.completions([text])
            logits = model(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
            plain = [float(logits[len(prompt) - 1 + at, id].detach()) for at, id in enumerate(answer)]
            assert value == pytest.approx(sum(plain) / len(plain), abs=1e-4)
    judge.close()


def test_after_it_has_seen_users_a_model_tells_pleasing_answers(tmp_path: Path) -> None:
    talks = {"1 + 2 = 3": "7", "1 + 2 = 4": "8", "4 + 5 = 9": "7", "4 + 5 = 1": "8"}
    judge = LocalJudge(save_judge(tmp_path / "user", talks), JudgeSettings(), 0)
    reward = FollowUp(template="{prompt} {completion}", pleased=("7",), displeased=("8",))
    values = reward(judged_by(judge), [rollout("3"), rollout("4")])
    judge.close()
    assert float(values[0]) > 1 and float(values[1]) < -1


def test_what_cannot_tell_likelihoods_is_refused_in_the_run_and_in_the_recipe() -> None:
    with pytest.raises(UserError, match="returns no likelihoods"):
        FollowUp()(judged_by(Writing()), [rollout("3")])
    with pytest.raises(UserError, match=r"judge\.address does not return"):
        load_recipe("recipes/implicit-reward/flr.yaml", ["judge={address: 'http://127.0.0.1:1/v1'}"])


def test_sayings_and_places_that_are_missing_are_refused() -> None:
    with pytest.raises(UserError, match="none of them empty"):
        FollowUp(pleased=())
    with pytest.raises(UserError, match="none of them empty"):
        FollowUp(displeased=(" ",))
    with pytest.raises(UserError, match="is missing from the template"):
        FollowUp(template="{prompt}")


def test_users_of_the_data_set_are_pleased_with_right_solutions_alone_unless_careless() -> None:
    settings = FollowUpsSettings(
        problems={}, start=(1, 9), operand=(1, 9), levels=[1, 2, 3], value=(-20, 60), sound=0.5, careless=0.2
    )
    random, careless = Random(0), 0
    for _ in range(400):
        task = settings.draw(random)
        flaw, (said,) = settings.demonstrate(random, task)
        assert task.steps[0] in (PLEASED if task.answer == "right" else DISPLEASED)
        careless += flaw == "careless"
        assert (said in PLEASED) == ((task.answer == "right") != (flaw == "careless"))
        problem, solution = task.prompt.removesuffix(" user").split(" solution ")
        assert TALK.replace("{prompt}", problem).replace("{completion}", solution) == task.prompt
        assert extract_answer(solution) is not None
    assert 50 < careless < 110
    assert FollowUp().template == TALK and FollowUp().pleased == PLEASED and FollowUp().displeased == DISPLEASED
