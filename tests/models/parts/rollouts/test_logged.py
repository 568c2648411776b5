"""Episodes of the data: they have the tokens of the warm start, and candidates continue their states."""

from pathlib import Path

import pytest
import torch

from models.agents.play.demonstrations import in_turns
from models.datasets.schema import TURNS
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import KnownAnswer, Problem
from models.method.scored import Scored
from models.parts.rewards.models.action_value import ActionValue
from models.parts.rollouts.logged import Logged, LoggedCandidates
from models.parts.select.best_by_value import BestByValue
from models.reward_models.critic.action_values import ACTION_VALUES, ActionValues, load_action_values
from tests.support.tiny_episodes import ENDING, Chatter
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, new_learner, save_start
from tests.support.tiny_models import scored
from tests.support.tiny_resources import CODEC, make_resources

TEXTS = [f"1 + 2{TURNS}3{TURNS}4 +{TURNS}5{TURNS}#### 7", "#### 3"]
PROBLEM = Problem(
    "p0",
    PROBLEMS[0].prompt,
    "7",
    1,
    PROBLEMS[0].tokens,
    tuple(KnownAnswer("demonstration", (2,), text) for text in TEXTS),
)
SETTINGS = {"environment": Chatter(), "prompts": 1, "turns": 3, "max_tokens": 40}


def test_a_logged_episode_has_the_tokens_that_the_warm_start_shows() -> None:
    made = Logged(**SETTINGS)(make_resources(), [PROBLEM], 0)  # type: ignore[arg-type]
    shown = in_turns(CODEC, "user", [(PROBLEM.tokens, text) for text in TEXTS], 99)
    whole = [(*rollout.problem.tokens, *rollout.completion) for rollout in made]
    assert [shown.whole(0), shown.whole(1)] == whole
    long, short = made
    assert [turn.text for turn in long.episode.turns] == ["1 + 2", "4 +", "#### 7"]
    assert [turn.response for turn in long.episode.turns] == ["3", "5", ""] and long.text == "1 + 2\n4 +\n#### 7"
    assert (
        long.trained == long.written and short.trained is None and short.episode.turns[0].stop == len(short.completion)
    )


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    start: Path = save_start(tmp_path_factory.mktemp("policy"))
    return TransformersEngine(start, EngineSettings(precision="float32"), end=ENDING.ends)


def test_candidates_stand_behind_the_states_of_the_log_and_the_log_carries_no_loss(engine: TransformersEngine) -> None:
    source = LoggedCandidates(candidates=3, experts=(0.5, 1.5), **SETTINGS)  # type: ignore[arg-type]
    made = source(make_resources(engine, codec=ENDING), [PROBLEM], 0)
    log, drawn = made[:2], made[2:]
    states = [(*r.problem.tokens, *r.completion[: turn.start]) for r in log for turn in r.episode.turns]
    assert all(rollout.trained_tokens == 0 for rollout in log) and len(drawn) == 6 * len(states) == 24
    for place, state in enumerate(states):
        mine = drawn[6 * place : 6 * place + 6]
        assert {rollout.problem.tokens for rollout in mine} == {state} and len({r.group for r in mine}) == 1
        assert all(rollout.episode.history == len(state) - len(PROBLEM.tokens) for rollout in mine)
    assert source.largest_group([PROBLEM]) == 6


def test_the_critic_of_logged_turns_is_written_next_to_the_policy_and_reads_the_same(tmp_path: Path) -> None:
    learner = new_learner(SCHEDULE)
    part = ActionValue()
    critic = learner.companions[part.companion] = part.accompany(learner.policy)
    source = LoggedCandidates(**SETTINGS)  # type: ignore[arg-type]
    source.export(learner, CODEC, tmp_path, tmp_path)
    states, turns = [PROBLEM.tokens] * 2, [(5, 1), (6, 7, 1)]
    loaded, trained = load_action_values(tmp_path / ACTION_VALUES), critic.model
    assert isinstance(trained, ActionValues)
    with torch.no_grad():
        expected = trained.values(trained.features(states, turns, 4096))
        torch.testing.assert_close(loaded.values(loaded.features(states, turns, 4096)), expected)
    del learner.companions[part.companion]
    source.export(learner, CODEC, tmp_path, tmp_path / "without")
    assert not (tmp_path / "without" / ACTION_VALUES).exists()


def test_the_best_of_each_group_by_value_is_kept_where_it_is_better_than_the_mean() -> None:
    values = torch.tensor([0.1, 0.9, 0.2, 0.5, 0.5, 0.7, 0.3])
    seen: Scored = scored(torch.zeros(7), [3, 2, 2], {"action_value": values})
    assert BestByValue()(seen).tolist() == [1, 5]
    assert BestByValue(least_gain=0.3)(seen).tolist() == [1]
    assert BestByValue(least_gain=0.9)(seen).tolist() == []
