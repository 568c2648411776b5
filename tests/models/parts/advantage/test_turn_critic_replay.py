"""The critic of turns on a chain of three states, with and without the episodes of earlier rounds."""

from dataclasses import replace

import pytest
import torch

from models.learner.optimiser import OptimiserSettings
from models.method import memory
from models.method.episode import Turn
from models.method.rollout import Rollout, RolloutEpisode
from models.method.scored import Scored
from models.parts.advantage.turn_critic import TurnCritic
from models.recipes.load import load_recipe
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, new_learner
from tests.support.tiny_resources import make_resources

FAST = CriticSettings(epochs=4, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=0))
EARNED = (0.0, 0.5, 1.0)
GAMMA = 0.5
FIXED_POINT = [0.5 * (0.5 + 0.5 * 1.0), 0.5 + 0.5 * 1.0, 1.0]
"""Values of the turns by V(s_t) = r_t + gamma V(s_t+1), computed from the end."""


def chain(earned: tuple[float, ...] = EARNED) -> Scored:
    """Return one episode of three turns of one token, with one token of the environment between them."""
    turns = tuple(Turn(2 * number, 2 * number + 1, state=str(number)) for number in range(3))
    trained = (True, False, True, False, True)
    rollout = Rollout(
        PROBLEMS[0], 0, (4, 6, 5, 7, 8), torch.zeros(5), "", True, trained=trained, episode=RolloutEpisode(turns=turns)
    )
    rewards = torch.tensor([earned[0], 0.0, earned[1], 0.0, earned[2]])
    return Scored([rollout], rewards.sum()[None], {}, {}, [rewards])


def learned(part: TurnCritic, rounds: list[Scored]) -> list[float]:
    learner = new_learner(SCHEDULE)
    learner.companions[part.companion] = part.accompany(learner.policy)
    resources = make_resources(learner=learner)
    for number, scored in enumerate(rounds):
        part.learn(resources, scored, part(resources, scored), number)
    values = part._values(resources, rounds[-1])[0]
    return [float(values[at]) for at in (0, 2, 4)]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("replay", [0, 3])
def test_its_fixed_point_is_that_of_temporal_differences(replay: int) -> None:
    part = TurnCritic(critic=FAST, gae_lambda=0.0, gamma=GAMMA, whiten=False, replay=replay)
    assert learned(part, [chain()] * (60 if replay == 0 else 25)) == pytest.approx(FIXED_POINT, abs=0.1)


def test_what_it_remembers_is_what_each_turn_earned_of_the_last_rounds_alone_and_survives_a_checkpoint() -> None:
    part, learner = TurnCritic(critic=FAST, replay=2), new_learner(SCHEDULE)
    learner.companions[part.companion] = part.accompany(learner.policy)
    resources = make_resources(learner=learner)
    for number in range(4):
        scored = chain((float(number), 0.5, 1.0))
        part.learn(resources, scored, part(resources, scored), number)
    kept = [[turn.reward for turn in rollout.episode.turns] for rollouts in learner.memory for rollout in rollouts]
    assert kept == [[2.0, 0.5, 1.0], [3.0, 0.5, 1.0]]
    assert len({rollout.group for rollouts in learner.memory for rollout in rollouts}) == 2
    again = memory.read(memory.written(learner.memory), PROBLEMS)
    assert [[vars(r) for r in rollouts] for rollouts in again] == [[vars(r) for r in rs] for rs in learner.memory]


REPLAYING = ["advantage={name: turn_critic, replay: 2}", "select=[{name: all}]"]


def test_a_recipe_that_replays_rollouts_too_is_refused() -> None:
    with pytest.raises(Exception, match=r"would both keep completions in the learner's one memory"):
        load_recipe("calculator", [*REPLAYING, "rollouts={name: replay}"])


def test_replay_changes_no_advantage() -> None:
    part = TurnCritic(critic=FAST)
    learner = new_learner(SCHEDULE)
    learner.companions[part.companion] = part.accompany(learner.policy)
    resources = make_resources(learner=learner)
    plain, replaying = part(resources, chain()), replace(part, replay=3)(resources, chain())
    assert torch.equal(plain.tokens[0], replaying.tokens[0])
