"""Twenty questions: the expected information of a question, by enumeration of the secrets, and the rewards."""

import json
import math

import pytest

from models.agents.environments.twenty_questions import TwentyQuestions
from models.agents.play.questions import attributes_of, expected_information, left_after
from models.base.errors import UserError
from models.method.problem import Problem
from models.task_sets.twenty_questions import ANIMALS

THINGS = {name: ANIMALS[name] for name in ("ant", "bat", "cow", "elk", "fox", "owl")}


def problem(secret: str) -> Problem:
    return Problem("p", " ".join(THINGS), json.dumps({"secret": secret, "things": THINGS}))


@pytest.mark.parametrize("attribute", attributes_of(ANIMALS))
def test_expected_information_is_the_entropy_that_enumerated_secrets_lose(attribute: str) -> None:
    for possible in (list(ANIMALS), list(THINGS), ["elk"], ["elk", "fox"]):
        before, after = math.log2(len(possible)), 0.0
        for secret in possible:  # each equally likely
            left = left_after(ANIMALS, possible, attribute, attribute in ANIMALS[secret])
            assert secret in left
            after += math.log2(len(left)) / len(possible)
        assert expected_information(ANIMALS, possible, attribute) == pytest.approx(before - after, abs=1e-12)


def test_a_question_earns_its_information_before_the_answer_and_a_repeated_one_nothing() -> None:
    environment = TwentyQuestions(information=0.5, cost=0.1)
    rewards = set()
    for secret in THINGS:  # the reward does not reveal the secret
        opened = environment.open(problem(secret))
        opened.reset(0)
        rewards.add(opened.step("fly?")[1])
        again = opened.step("fly?")[1]
        assert again == pytest.approx(-0.1)
    share = 2 / 6
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    assert list(rewards) == [pytest.approx(0.5 * entropy - 0.1)]


def test_answers_are_those_of_the_secret_and_the_state_is_what_is_still_possible() -> None:
    opened = TwentyQuestions().open(problem("fox"))
    assert opened.reset(0) == ("", {"state": "ant bat cow elk fox owl"})
    assert opened.step("fur?")[0] == "yes" and opened.step("big?")[0] == "no"
    assert opened.step("fly?") == ("no", 0.0, False, False, {"state": "fox", "solved": False})
    assert opened.step("#### fox") == ("", 1.0, True, False, {"solved": True})


@pytest.mark.parametrize("guess", ["#### elk", "elk", "", "fox elk", "#### the secret", "fox is it"])
def test_another_guess_ends_the_episode_without_the_goal(guess: str) -> None:
    assert TwentyQuestions().open(problem("fox")).step(guess) == ("", 0.0, True, False, {"solved": False})


def test_nothing_that_is_said_names_the_secret() -> None:
    for secret in THINGS:
        opened = TwentyQuestions(cost=0.25).open(problem(secret))
        for asked in ("fly?", "secret?", f"{secret}?", "is it an animal?"):
            said, reward, over, *_ = opened.step(asked)
            assert said in ("yes", "no", "error: unknown") and not over
            assert reward == -0.25


def test_no_two_animals_have_the_same_attributes() -> None:
    assert len({frozenset(attributes) for attributes in ANIMALS.values()}) == len(ANIMALS)


def test_a_secret_that_is_not_listed_is_refused() -> None:
    with pytest.raises(UserError, match="problem p: the secret is none of the things"):
        TwentyQuestions().open(Problem("p", "", json.dumps({"secret": "yak", "things": THINGS})))
