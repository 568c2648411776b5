"""Episodes that are cut into several sequences, as is necessary if a chat template cannot be continued.

The uncut episode is the reference for gradients, advantages and fits. In a cut episode, each turn is a sequence whose
prompt contains everything before that turn.
"""

import copy
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.learner.reduce import Normalisation
from models.method.advantage import Advantage
from models.method.episode import Turn
from models.method.episode_parts import whole_of
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.objective import Objective
from models.method.problem import Problem
from models.method.registry import parts
from models.method.rollout import Rollout, parts_of
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.advantage.anchored import Anchored
from models.parts.advantage.batch_normalised import BatchNormalised
from models.parts.advantage.gae import Gae
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.advantage.length_weighted import LengthWeighted
from models.parts.advantage.process_leave_one_out import ProcessLeaveOneOut
from models.parts.advantage.redistributed import Redistributed
from models.parts.advantage.step_difference import StepDifference
from models.parts.advantage.turn_critic import TurnCritic
from models.parts.advantage.turn_returns import TurnReturns
from models.parts.objective.grpo import Grpo
from models.parts.objective.reinforce import Reinforce
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.model import new_critic
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

STEP = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
IDS = [(4, 5, 6, 7, 8, 9, 3, 4), (5, 6, 7, 8, 9), (9, 3, 3, 5, 4, 4, 8), (6, 6, 5)]
TURNS = [((0, 2), (3, 5), (7, 8)), ((0, 1), (4, 5)), ((1, 3), (5, 7)), ((0, 3),)]
"""The first token of each turn, and the token after its last. The environment writes the tokens between the turns."""
GROUPS = [0, 0, 1, 1]
WORTH = [1.0, 0.25, -0.5, 0.5]
PROMPT = (7, 3)
KINDS = parts("objective")


def whole() -> list[Rollout]:
    """Make two episodes for each of two problems. The log-probs of the engine differ from those of the policy."""
    rollouts = []
    for ids, places, group in zip(IDS, TURNS, GROUPS, strict=True):
        off = torch.linspace(-2.5, -1.0, len(ids), dtype=torch.float64)
        made = Rollout(Problem(f"p{group}", "", tokens=PROMPT), group, ids, off, "", True)
        made = replace(
            made, episode=replace(made.episode, turns=tuple(Turn(*place, reward=0.1 * place[1]) for place in places))
        )
        rollouts.append(replace(made, trained=made.written))
    return rollouts


def cut_after_each_turn(episode: Rollout) -> Rollout:
    """Return the episode with one sequence per turn."""
    made, behaviour = [], episode.behaviour_log_probs
    assert behaviour is not None
    for turn in episode.episode.turns:
        before = episode.completion[: turn.start]
        problem = replace(episode.problem, tokens=(*PROMPT, *before))
        made.append(
            replace(
                episode,
                problem=problem,
                completion=episode.completion[turn.start : turn.stop],
                behaviour_log_probs=behaviour[turn.start : turn.stop].clone(),
                episode=replace(
                    episode.episode, turns=(turn._replace(start=0, stop=turn.stop - turn.start),), history=len(before)
                ),
                trained=(True,) * (turn.stop - turn.start),
            )
        )
    return whole_of(made)


def cut() -> list[Rollout]:
    return [cut_after_each_turn(episode) for episode in whole()]


def of_the_policy(rows: list[Tensor], rollouts: list[Rollout]) -> Tensor:
    """Return the values at the tokens that the policy wrote. These tokens do not depend on how an episode is cut."""
    return torch.cat([row[torch.tensor(rollout.written)] for row, rollout in zip(rows, rollouts, strict=True)])


def learner_of(seed: int = 0) -> Learner:
    policy, reference = tiny_policy(seed=seed), tiny_policy(seed=1, spread=2.0).requires_grad_(False)
    return Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)


def scored(rollouts: list[Rollout]) -> Scored:
    worth = torch.tensor(WORTH, dtype=torch.float64)
    components = {"typicality": worth * 0.5 - 1.0, "log_ratio_baseline": worth * 0.3}
    by_token = [torch.zeros(len(rollout.completion), dtype=torch.float64) for rollout in rollouts]
    for row, rollout in zip(by_token, rollouts, strict=True):
        row[torch.tensor(rollout.written)] = torch.linspace(-0.2, 0.3, rollout.written_tokens, dtype=torch.float64)
    return Scored(rollouts, worth, components, {}, by_token)


def advantages(rollouts: list[Rollout]) -> list[Tensor]:
    """Make a different advantage for every turn."""
    rows = []
    for number, rollout in enumerate(rollouts):
        row = torch.zeros(len(rollout.completion), dtype=torch.float64)
        for place, turn in enumerate(rollout.episode.turns):
            row[turn.start : turn.stop] = 0.7 - place + 0.3 * number
        rows.append(row)
    return rows


def gradient(
    objective: Objective, rollouts: list[Rollout], budget: int, normalisation: Normalisation | None = None
) -> dict[str, Tensor]:
    learner = learner_of()
    if objective.needs_teacher is not None:
        teacher, contrast = (tiny_policy(seed=seed, spread=3.0).requires_grad_(False) for seed in (5, 6))
        learner = replace(learner, teachers={"teacher": teacher, "contrast": contrast})
    before = copy.deepcopy(dict(learner.policy.named_parameters()))
    several = not objective.on_policy_only
    schedule = ScheduleSettings(
        optimiser=STEP, rounds=2, token_budget=budget, normalisation=normalisation, epochs=2 if several else 1
    )
    fit_round(learner, objective, scored(rollouts), advantages(rollouts), schedule, longest=16)
    return {name: (before[name] - after).detach() for name, after in learner.policy.named_parameters()}


def assert_the_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    scale = max(float(value.abs().max()) for value in expected.values())
    assert scale > 0
    for name, value in expected.items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-12 * max(1.0, scale))


def objective_of(name: str) -> Objective:
    kind: Any = KINDS[name]
    settings: dict[str, float] = {"kl": 0.1} if "kl" in {field.name for field in fields(kind)} else {}
    if name == "top_entropy":  # the default share would separate first tokens of equal entropy
        settings["share"] = 0.4
    objective: Objective = kind(**settings)
    return objective


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_cutting_an_episode_into_several_sequences_changes_no_objectives_gradient(name: str) -> None:
    assert_the_same(gradient(objective_of(name), cut(), 32), gradient(objective_of(name), whole(), 4096))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
def test_every_normalisation_counts_episodes_and_not_their_sequences(normalisation: Normalisation) -> None:
    for objective in (Reinforce(), Grpo(kl=0.1)):
        expected = gradient(objective, whole(), 4096, normalisation)
        assert_the_same(gradient(objective, cut(), 32, normalisation), expected)


ADVANTAGES = [
    GroupRelative(kl_in_reward=0.1), LeaveOneOut(), LengthWeighted(), BatchNormalised(kl_in_reward=0.1),
    BatchNormalised(baseline="group"), ProcessLeaveOneOut(whiten=True), TurnReturns(gamma=0.9), Anchored(),
    Anchored(form="gigpo"),
]  # fmt: skip
CRITICS = [
    TurnCritic(gamma=0.9), Gae(gamma=0.9, kl_in_reward=0.1), Gae(reward_scale="batch"), StepDifference(),
    Redistributed(),
]  # fmt: skip
SETTINGS = CriticSettings(optimiser=STEP, epochs=2)


@pytest.mark.parametrize("advantage", ADVANTAGES, ids=lambda advantage: advantage.name)
def test_cutting_an_episode_changes_no_advantage(advantage: Advantage) -> None:
    rows = []
    for rollouts in (whole(), cut()):
        resources = make_resources(learner=learner_of())
        rows.append(of_the_policy(list(advantage(resources, scored(rollouts)).tokens), rollouts))
    assert bool(rows[0].any())
    torch.testing.assert_close(rows[1], rows[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("advantage", CRITICS, ids=lambda advantage: advantage.name)
def test_cutting_an_episode_changes_neither_a_critics_values_and_advantages_nor_its_fit(
    advantage: TurnCritic | Gae | StepDifference | Redistributed,
) -> None:
    part = replace(advantage, critic=SETTINGS)
    seen, fitted = [], []
    for rollouts in (whole(), cut()):
        learner = learner_of()
        torch.manual_seed(3)
        learner.companions[part.companion] = new_critic(tiny_policy(seed=4), SETTINGS)
        critic = critic_of(learner.companions[part.companion])
        with torch.no_grad():
            critic.head.weight.normal_()
        resources = make_resources(learner=learner, token_budget=32 if rollouts[0].episode.parts else 4096)
        given = scored(rollouts)
        signal = part(resources, given)
        part.learn(resources, given, signal, 0)
        values = of_the_policy(list(signal.values), rollouts)
        seen.append(torch.cat([of_the_policy(list(signal.tokens), rollouts), values]))
        fitted.append({name: value.detach().clone() for name, value in critic.named_parameters()})
    assert bool(seen[0].any())
    torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=1e-12)
    scale = max(float(value.abs().max()) for value in fitted[0].values())
    for name, value in fitted[0].items():
        torch.testing.assert_close(fitted[1][name], value, rtol=0, atol=1e-11 * max(1.0, scale))


def test_an_episode_of_unrelated_contexts_stands_in_one_row_or_the_budget_is_refused_by_a_line() -> None:
    episodes = cut()
    first = episodes[0]
    apart = tuple(
        replace(
            part,
            problem=replace(part.problem, tokens=(8 + place, *part.problem.tokens)),
            episode=replace(part.episode, history=0),
        )
        for place, part in enumerate(first.episode.parts)
    )
    strange = [whole_of(apart), *episodes[1:]]
    expected = gradient(objective_of("gspo"), strange, 4096)
    assert_the_same(gradient(objective_of("gspo"), strange, 32), expected)
    with pytest.raises(UserError, match=r"schedule.token_budget is 12, smaller than one row: 3 turns that belong toge"):
        gradient(objective_of("gspo"), strange, 12)


def test_an_episode_is_its_parts_in_their_order() -> None:
    for episode in cut():
        parts = parts_of([episode])
        assert episode.completion == tuple(id for part in parts for id in part.completion)
        spoken = [episode.completion[turn.start : turn.stop] for turn in episode.episode.turns]
        assert spoken == [part.completion for part in parts] and all(episode.trained or ())
