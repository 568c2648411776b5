"""An episode that is cut into a sequence for each of its turns: what a template that cannot be continued asks for."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_models import tiny_policy
from torch import Tensor

from models.learner.fused_log_probs import AS_IT_IS
from models.learner.optimiser import OptimiserSettings
from models.loop.fit import fit_round
from models.loop.learner import Learner
from models.loop.rollout import Problem, Rollout, Scored
from models.loop.schedule import ScheduleSettings
from models.loop.turn import Turn
from models.objective.grpo import Grpo

STEP = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
IDS = [(4, 5, 6, 7, 8, 9, 3, 4), (5, 6, 7, 8, 9)]
TURNS = [((0, 2), (3, 5), (7, 8)), ((0, 1), (4, 5))]
"""First token of each turn, and the one behind its last; between them the environment writes."""
PROMPT = (7, 3)


def whole() -> tuple[list[Rollout], list[Tensor]]:
    """Both episodes, and an advantage for each turn at its tokens."""
    rollouts, rows = [], []
    for number, (ids, places) in enumerate(zip(IDS, TURNS, strict=True)):
        made = Rollout(Problem(f"p{number}", "", tokens=PROMPT), number, ids, None, "", True)
        made = replace(made, turns=tuple(Turn(start, stop) for start, stop in places))
        rollouts.append(replace(made, trained=made.written))
        row = torch.zeros(len(ids), dtype=torch.float64)
        for turn, (start, stop) in enumerate(places):
            row[start:stop] = 0.7 - turn + 0.3 * number
        rows.append(row)
    return rollouts, rows


def cut() -> tuple[list[Rollout], list[Tensor]]:
    """A sequence a turn, behind all that stood before it."""
    rollouts, rows = [], []
    for episode, row in zip(*whole(), strict=True):
        for turn in episode.turns:
            before = episode.completion[: turn.start]
            problem = replace(episode.problem, tokens=(*PROMPT, *before))
            ids = episode.completion[turn.start : turn.stop]
            made = Rollout(problem, episode.group, ids, None, "", True, history=len(before), episode=0)
            rollouts.append(made)
            rows.append(row[turn.start : turn.stop])
    return rollouts, rows


def gradient(rollouts: list[Rollout], advantage: list[Tensor], budget: int) -> dict[str, Tensor]:
    policy, reference = tiny_policy(), tiny_policy(seed=1, spread=2.0).requires_grad_(False)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, AS_IT_IS)
    before = copy.deepcopy(dict(policy.named_parameters()))
    chosen = Scored(rollouts, torch.ones(len(rollouts)), {}, {})
    schedule = ScheduleSettings(optimiser=STEP, rounds=1, token_budget=budget)
    fit_round(learner, Grpo(kl=0.1), chosen, advantage, schedule, longest=8)
    return {name: (before[name] - after).detach() for name, after in policy.named_parameters()}


@pytest.mark.parametrize("budget", [16, 4096])
def test_an_episode_cut_into_a_sequence_a_turn_has_the_gradient_of_the_whole(budget: int) -> None:
    expected, actual = gradient(*whole(), 4096), gradient(*cut(), budget)
    assert any(bool(value.any()) for value in expected.values())
    for name, value in expected.items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-12)
