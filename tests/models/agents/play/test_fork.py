"""Branches of an episode: their common beginning, the turn that is trained on, environments that cannot branch."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rollouts.forked import Forked
from tests.support.tiny_episodes import ENDING, Chatter
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_resources import make_resources


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    return TransformersEngine(
        save_start(tmp_path_factory.mktemp("policy")), EngineSettings(precision="float32"), end=ENDING.ends
    )


def branches(engine: TransformersEngine, environment: Any = None, **settings: Any) -> list[list[Rollout]]:
    chatter = environment or Chatter(lasts=3, greeting="5 + 5")
    part = Forked(prompts=4, group_size=4, max_tokens=60, environment=chatter, **settings)
    made = part(make_resources(engine, codec=ENDING), PROBLEMS[:4], 0)
    return [made[at : at + 4] for at in range(0, 16, 4)]


def first_apart(group: list[Rollout]) -> int:
    """Return the beginning of the trained turn, which must be the same in all branches."""
    starts = {rollout.trained.index(True) for rollout in group if rollout.trained is not None}
    assert len(starts) == 1
    return starts.pop()


def test_branches_share_all_up_to_a_turn_and_are_trained_on_at_that_turn_alone(engine: TransformersEngine) -> None:
    places = set()
    for group in branches(engine):
        start = first_apart(group)
        shared = {rollout.completion[:start] for rollout in group}
        assert len(shared) == 1
        for rollout in group:
            (number,) = (n for n, turn in enumerate(rollout.episode.turns) if turn.start == start)
            turn = rollout.episode.turns[number]
            assert rollout.trained == tuple(turn.start <= at < turn.stop for at in range(len(rollout.completion)))
            assert rollout.episode.turns[:number] == group[0].episode.turns[:number]
            said = rollout.behaviour_log_probs
            assert said is not None and group[0].behaviour_log_probs is not None
            assert torch.equal(said[:start], group[0].behaviour_log_probs[:start])
            places.add(number)
        assert len({rollout.completion for rollout in group}) > 1
    assert len(places) > 1, "all forks are at the same turn"


@pytest.mark.rotating(of=6)
def test_the_same_round_branches_in_the_same_way_and_at_its_own_pace_too(engine: TransformersEngine) -> None:
    first, again, paced = branches(engine), branches(engine), branches(engine, waves=False)
    for other in (again, paced):
        assert [[r.completion for r in group] for group in first] == [[r.completion for r in group] for group in other]


def test_an_environment_that_answers_otherwise_the_second_time_is_refused(engine: TransformersEngine) -> None:
    answer = 0

    @dataclass(frozen=True, kw_only=True)
    class Fickle(Chatter):
        def open(self, problem: Problem) -> Any:
            nonlocal answer
            answer += 1
            return Chatter(lasts=3, words="5" if answer <= 4 else "7 7").open(problem)

    with pytest.raises(UserError, match="answered otherwise than before, so episodes cannot branch in it"):
        branches(engine, Fickle())
