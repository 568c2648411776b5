"""Simulated tools: a search whose share of noise follows a schedule, and models that know only some attributes."""

import json

import pytest

from models.agents.environments.tools import Tools
from models.agents.tools.candidate import CandidateModel
from models.agents.tools.simulated_search import SimulatedSearch
from models.method.problem import Problem

TOWNS = [f"town{number}" for number in range(40)]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("facts") / "facts.jsonl"
    file.write_text(
        "".join(
            json.dumps({"text": f"{attribute} of {town}: {attribute}{number}"}) + "\n"
            for number, town in enumerate(TOWNS)
            for attribute in ("river", "ruler")
        )
    )
    return str(file)


@pytest.mark.parametrize("number, share", [(0, 0.1), (5, 0.1 + (2 - 1) / 3 * 0.6), (10, 0.7), (25, 0.7)])
def test_the_share_of_noise_is_the_schedules(documents: str, number: int, share: float) -> None:
    tool = SimulatedSearch(documents=documents, results=1, start=0.1, end=0.7, base=4, rounds=10).in_round(number)
    noisy = 0
    for seed in range(50):
        heard = tool.in_episode(seed)
        noisy += sum(heard.call(f"river of {town}") != f"river of {town}: river{n}" for n, town in enumerate(TOWNS))
    assert abs(noisy / 2000 - share) < 4 * (share * (1 - share) / 2000) ** 0.5


def test_a_schedule_of_base_one_rises_evenly_and_evaluations_hear_the_last_of_it(documents: str) -> None:
    tool = SimulatedSearch(documents=documents, base=1, start=0.0, end=0.5, rounds=10)
    assert [tool.in_round(number)._noise() for number in (0, 5, 10, 11)] == [0.0, 0.25, 0.5, 0.5]
    assert tool._noise() == 0.5


def test_noise_is_about_what_was_asked_and_is_the_same_for_an_episode(documents: str) -> None:
    tool = SimulatedSearch(documents=documents, results=1, start=1.0, end=1.0).in_episode(3)
    said = tool.call("river of town7")
    assert said.startswith("river of town7: river") and said != "river of town7: river7"
    assert tool.call("river of town7") == said
    assert len({tool.in_episode(seed).call("river of town7") for seed in range(30)}) > 10


def test_a_round_changes_the_tools_of_an_environment_and_an_episode_their_chance(documents: str) -> None:
    tool = SimulatedSearch(documents=documents, results=1, start=0.0, end=1.0, rounds=10)
    late = Tools(tool=[tool]).in_round(10).open(Problem("p", "?"))
    late.reset(5)
    assert late.step("search: river of town7")[0] == tool.in_episode(5).call("river of town7")
    first = Tools(tool=[tool]).in_round(0).open(Problem("p", "?"))
    first.reset(5)
    assert first.step("search: river of town7")[0] == "river of town7: river7"


def test_a_candidate_is_right_about_what_it_knows_and_sure_of_the_rest(documents: str) -> None:
    small = CandidateModel(documents=documents, results=1, called="small", knows=("river",))
    large = CandidateModel(documents=documents, results=1)
    opened = Tools(tool=[small, large]).open(Problem("p", "?"))
    opened.reset(0)
    assert opened.step("small: river of town3")[0] == "river of town3: river3"
    assert opened.step("large: ruler of town3")[0] == "ruler of town3: ruler3"
    wrong = opened.step("small: ruler of town3")[0]
    assert wrong.startswith("ruler of town3: ruler") and wrong != "ruler of town3: ruler3"
    assert opened.step("small: ruler of town3")[0] == wrong
