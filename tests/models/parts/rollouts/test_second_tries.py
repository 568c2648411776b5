"""Second tries of failed episodes: with guidance that is not trained on, or under the goal that was reached."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from models.agents.environments.tools import Tools
from models.agents.play.replaying import replay
from models.engines.engine import CompletionRequest, EngineSettings, Generated, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.method.environment import Environment, EnvironmentEpisode
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.episodes.solved import Solved, reached_goal
from models.parts.rollouts.relabelled import Relabelled
from models.parts.rollouts.second_try import SecondTryEpisodes
from tests.support.tiny_episodes import ENDING
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_resources import make_resources

SETTINGS: dict[str, Any] = {"prompts": 4, "group_size": 4, "max_tokens": 32, "turns": 3}


class Listening(TransformersEngine):
    """An engine that records its prompts."""

    prompts: list[Sequence[int]]

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        self.prompts = [*getattr(self, "prompts", []), *(ask.prompt for ask in requests)]
        return super().complete(requests, drawing)


class _Walk:
    def __init__(self, settings: "Walk", problem: Problem) -> None:
        self.settings, self.goal, self.place, self.taken = settings, problem.answer, 0, 0

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self.place = seed % 3
        return (f"{self.goal} =" if self.settings.tells_goal else ""), {"state": str(self.place)}

    def step(self, turn: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.place, self.taken = (self.place + len(turn.split())) % 16, self.taken + 1
        there = str(self.place) == self.goal
        return str(self.place), float(there), there or self.taken == 2, False, {"solved": there}

    def close(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Walk(Environment):
    """An environment in which every word is a step from a random place to a goal, in at most two turns."""

    name = "walk"
    tells_goal: bool = False
    lies: bool = False

    def open(self, problem: Problem) -> EnvironmentEpisode:
        return _Walk(self, problem)

    def reached(self, problem: Problem, turns: Sequence[Turn]) -> Problem | None:
        place = str(int(turns[0].response) + 1 if self.lies else turns[0].response)
        return Problem(f"to {place}", f"{place} +", place)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def engine(start: Path) -> Listening:
    return Listening(start, EngineSettings(precision="float32"), end=ENDING.ends)


def draw(engine: Listening, source: SecondTryEpisodes | Relabelled, goal: str = "13") -> list[Rollout]:
    problems = [replace(problem, answer=goal) for problem in PROBLEMS[:4]]
    return source(make_resources(engine, codec=ENDING), problems, 0)


def test_guidance_is_read_while_drawing_and_stands_in_no_trained_sequence(engine: Listening) -> None:
    source = SecondTryEpisodes(
        environment=Walk(), guidance="{prompt} 16 {answer}", retries=3, only_right=False, **SETTINGS
    )
    made = draw(engine, source, goal="99")  # a place that does not exist, so every episode fails
    plain = {problem.id: problem.tokens for problem in PROBLEMS}
    guided = [rollout for rollout in made if rollout.source.origin == "explained"]
    texts = [f"{PROBLEMS[number].prompt} 16 99" for number in {rollout.group for rollout in guided}]
    guided_ids = {tuple(ids) for ids in ENDING.prompts(texts)}
    assert len(guided_ids) > 1 and all(
        any(tuple(prompt[: len(ids)]) == ids for prompt in engine.prompts) for ids in guided_ids
    )
    assert all(rollout.problem.tokens == plain[rollout.problem.id] for rollout in made)
    assert all(rollout.problem.prompt == PROBLEMS[rollout.group].prompt for rollout in made)
    assert all(rollout.behaviour_log_probs is None for rollout in guided)


@pytest.mark.rotating(of=6)
def test_only_problems_that_failed_are_tried_again_and_only_successes_kept(engine: Listening) -> None:
    every = draw(engine, SecondTryEpisodes(environment=Walk(), retries=16, only_right=False, **SETTINGS))
    right = draw(engine, SecondTryEpisodes(environment=Walk(), retries=16, **SETTINGS))
    first = [rollout for rollout in every if rollout.source.origin == "policy"]
    failed = {n for n in range(4) if not any(reached_goal(r) for r in first if r.group == n)}
    assert {rollout.group for rollout in every if rollout.source.origin == "explained"} == failed
    kept = [rollout.completion for rollout in every if rollout.source.origin == "explained" and reached_goal(rollout)]
    assert [rollout.completion for rollout in right if rollout.source.origin == "explained"] == kept


def test_relabelled_goals_are_reached_when_the_episode_is_played_under_them(engine: Listening) -> None:
    made = draw(engine, Relabelled(environment=Walk(), **SETTINGS))
    again = [rollout for rollout in made if rollout.source.origin == "relabelled"]
    assert again and Solved()(make_resources(), again).all()
    groups = [rollout.group for rollout in again]
    assert len(set(groups)) == len(groups) and min(groups) == 4
    for rollout in again:
        assert rollout.problem.prompt == f"{rollout.problem.answer} +" and rollout.problem.answer != "13"
        assert rollout.problem.tokens == tuple(ENDING.prompts([rollout.problem.prompt])[0])
        assert (
            len(rollout.episode.turns) == 1 and len(rollout.completion) == rollout.episode.turns[0].stop
        )  # cut at the turn that reached the goal
        assert rollout.episode.turns[0].reward == 1.0 and rollout.episode.turns[0].response == rollout.problem.answer
        source = [other for other in made if other.completion[: len(rollout.completion)] == rollout.completion]
        assert any(other.source.origin == "policy" and not reached_goal(other) for other in source)


@pytest.mark.parametrize("environment", [Walk(lies=True), Walk(tells_goal=True)], ids=["a false goal", "other words"])
def test_a_goal_that_is_not_verified_relabels_nothing(engine: Listening, environment: Walk) -> None:
    made = draw(engine, Relabelled(environment=environment, **SETTINGS))
    again = [rollout for rollout in made if rollout.source.origin == "relabelled"]
    # A false goal can be the place after the next turn. Then it is true, and is verified.
    assert all(rollout.episode.turns[-1].response == rollout.problem.answer for rollout in again)
    assert len(again) < 4 and (not again or environment.lies)


def test_what_a_miscopied_call_asked_for_is_the_goal_that_it_reached() -> None:
    tools = Tools(goal="{argument} = ?")
    turns = (
        Turn(0, 1, text="calculator: 47 * 53", response="2491"),
        Turn(2, 3, text="#### 2491"),
    )
    goals = [tools.reached(Problem("p", f"{number} * 83 = ?", "3901"), turns) for number in range(12, 60)]
    held = [goal for goal in goals if goal is not None]
    assert {(goal.prompt, goal.answer) for goal in held} == {("47 * 53 = ?", "2491")}
    assert 0 < len(held) < len(goals)  # a goal must be in the same split as the problem
    assert Tools().reached(Problem("p", "47 * 83 = ?", "3901"), turns) is None
    guess = (Turn(0, 1, text="#### 2491"),)
    assert tools.reached(Problem("p", "47 * 83 = ?", "3901"), guess) is None
    seen = replay(tools, Problem("p", "47 * 83 = ?", "3901"), held[0], turns, 0, 10.0)
    assert seen is not None and [turn.response for turn in seen.turns] == ["2491", ""] and seen.solved is None
