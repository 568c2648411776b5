"""Pair losses in self-play (SPIN, DNO): their gradients and fixed points, by enumeration of all answers."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.method.policy_outputs import PolicyOutputs
from models.method.problem import Origin, Problem
from models.method.rollout import Rollout, RolloutSource
from models.method.token_batch import pairs_of, token_batch
from models.parts.objective.dpo import Dpo
from models.parts.objective.soft_dpo import SoftDpo
from models.parts.rewards.shaping.win_rate import win_rates
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe
from models.training.score import score
from tests.support.enumerable_pairs import mean_gradient
from tests.support.tiny_resources import make_resources

DATA = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
OPPONENT = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)
"""The policy of the previous round, which is also the reference."""
ALL = torch.tensor(list(product(range(4), repeat=2)))
"""All pairs of an answer of the data and one of the opponent, equal ones included, [16, 2]."""
NOTHING = torch.zeros(4, dtype=torch.float64)


def spin(beta: float, policy: Tensor, opponent: Tensor) -> Tensor:
    """Return the exact gradient of SPIN's expected loss: the better answer is the data's, the worse the opponent's."""
    chance = DATA[ALL[:, 0]] * opponent[ALL[:, 1]]
    return mean_gradient(Dpo(beta=beta), policy.log(), chance, ALL, reference=opponent.log())


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_spin_stops_where_the_policy_is_the_distribution_of_the_data(beta: float) -> None:
    torch.testing.assert_close(spin(beta, DATA, DATA), NOTHING)


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_an_iteration_of_spin_begins_by_moving_mass_from_the_opponents_answers_to_the_datas(beta: float) -> None:
    torch.testing.assert_close(spin(beta, OPPONENT, OPPONENT), beta / 2 * (OPPONENT - DATA))


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0, 3.0])
def test_an_iteration_of_spin_is_at_rest_at_the_opponent_times_a_power_of_its_ratio_to_the_data(beta: float) -> None:
    """The gradient is zero at opponent * (data / opponent)^(1 / beta), normalised. If beta is 1, this is the data."""
    at_rest = (OPPONENT.log() + (DATA / OPPONENT).log() / beta).softmax(0)
    torch.testing.assert_close(spin(beta, at_rest, OPPONENT), NOTHING)
    assert (beta == 1.0) == torch.allclose(at_rest, DATA)


class Softmax(nn.Module):
    """A policy over the four answers that the reference of a recipe can follow."""

    def __init__(self, chance: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(chance.log())

    def log_prob(self) -> Tensor:
        return self.logits.log_softmax(0)


def spin_round(recipe: Recipe, policy: Any, reference: Any) -> Tensor:
    """Return the exact gradient of a round's first step with the recipe's rewards, selectors and loss, [answers]. The
    policy's draws are paired with the answers of the data."""
    metrics = policy.log_prob()
    problems = [Problem(str(number), "") for number in range(len(ALL))]
    origins: tuple[Origin, ...] = ("demonstration", "policy")
    rollouts = [
        Rollout(problem, number, (int(answer),), None, "", True, source=RolloutSource(origin=origin))
        for number, (problem, answers) in enumerate(zip(problems, ALL, strict=True))
        for answer, origin in zip(answers, origins, strict=True)
    ]
    chosen = score(make_resources(), recipe.rewards, rollouts)
    for select in recipe.select:
        chosen = chosen.take(select(chosen))
    answers = torch.tensor([rollout.completion[0] for rollout in chosen.rollouts])
    advantage = recipe.advantage(make_resources(), chosen).tokens
    held = list(reference.log_prob().detach()[answers].split(1))
    said = PolicyOutputs(metrics[answers], metrics[answers])
    log_prob, batch = token_batch(chosen, range(len(answers)), advantage, said, None, held, 0.0)
    batch = replace(batch, pairs=pairs_of(chosen, range(len(answers))))
    assert batch.pairs is not None
    assert len(batch.pairs) == len(ALL)
    losses, _ = recipe.objective(batch.by_pair(log_prob), batch)
    chance = DATA[ALL[:, 0]] * metrics.detach().exp()[ALL[:, 1]]
    gradient: Tensor = torch.autograd.grad((chance * losses).sum(), policy.logits)[0]
    return gradient


@pytest.mark.parametrize("finished", [0, 1, 6])
def test_by_the_recipe_spin_stops_at_the_data_whatever_round_it_is_because_the_opponent_is_its_reference(
    finished: int,
) -> None:
    recipe = load_recipe("spin")
    policy, reference = Softmax(DATA), Softmax(OPPONENT)  # after a round that has fitted the data
    assert spin_round(recipe, policy, reference).abs().max() > 1e-3  # not zero with an older opponent
    recipe.reference.follow(reference, policy, finished)
    torch.testing.assert_close(spin_round(recipe, policy, reference), NOTHING)


@pytest.mark.parametrize("name", ["spin", "dno"])
def test_a_round_of_self_play_begins_at_its_reference_and_takes_steps_away_from_it(name: str) -> None:
    """With one step per round, all margins would be zero, and only the slope of the loss at zero would be used."""
    recipe = load_recipe(name)
    for finished in range(12):
        policy, reference = Softmax(DATA), Softmax(OPPONENT)
        recipe.reference.follow(reference, policy, finished)
        torch.testing.assert_close(reference.logits, policy.logits)
    assert recipe.schedule is not None
    assert recipe.schedule.minibatches * recipe.schedule.epochs > 1 and recipe.schedule.staleness == 0


BEATS = torch.tensor([[0.5, 0.9, 0.2], [0.1, 0.5, 0.8], [0.8, 0.2, 0.5]], dtype=torch.float64)
"""Cyclic preferences: 0 beats 1, 1 beats 2, 2 beats 0. No scalar reward can express them."""
CIRCLE = torch.tensor([(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)])


def direct_nash(policy: Tensor, played: Tensor, beta: float) -> float:
    """Return the largest gradient of a single pair of answers, with labels from win rates against `played`."""
    won = BEATS @ played
    worst = 0.0
    for number in range(len(CIRCLE)):
        opponent = torch.zeros(len(CIRCLE), dtype=torch.float64)
        opponent[number] = 1.0
        metrics = {"reward": won[CIRCLE.flatten()], "reference": played.log()}
        worst = max(
            worst, float(mean_gradient(SoftDpo(beta=beta), policy.log(), opponent, CIRCLE, **metrics).abs().max())
        )
    return worst


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_a_round_of_direct_nash_is_at_rest_at_the_multiplicative_step_by_win_rate(beta: float) -> None:
    played = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    step = (played.log() + BEATS @ played / beta).softmax(0)
    assert direct_nash(step, played, beta) < 1e-12 and direct_nash(played, played, beta) > 1e-3


def test_direct_nash_stays_at_the_equilibrium_of_preferences_that_go_in_a_circle() -> None:
    # every answer has a win rate of 1/2 against the equilibrium: BEATS @ nash = 1/2
    nash = torch.linalg.lstsq(
        torch.cat([BEATS, torch.ones(1, 3, dtype=torch.float64)]),
        torch.tensor([0.5, 0.5, 0.5, 1.0], dtype=torch.float64),
    ).solution
    torch.testing.assert_close(BEATS @ nash, torch.full((3,), 0.5, dtype=torch.float64))
    assert nash.min() > 0.1 and direct_nash(nash, nash, 0.5) < 1e-12


def test_the_win_rate_in_a_group_is_on_average_the_win_rate_against_the_policy() -> None:
    """The labels from a group are therefore unbiased: the two other answers in a group of three are policy samples."""
    played = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    others = ~torch.eye(3, dtype=torch.bool)
    for answer in range(3):
        mean = 0.0
        for first, second in product(range(3), repeat=2):
            group = [answer, first, second]
            rates = win_rates(BEATS[group][:, group], others)[0]
            mean += float(played[first] * played[second] * rates)
        assert mean == pytest.approx(float(BEATS[answer] @ played))
