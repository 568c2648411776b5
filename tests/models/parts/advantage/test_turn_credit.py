"""Credit of turns, compared with the true gradient of a decision process whose episodes are all enumerated.

The process has two turns, two states and two actions. The second state depends on the first action and on chance. The
mean of an estimator's gradient over all pairs of episodes is computed pair by pair and compared with the true one.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.method.advantage import Advantage, Signal
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.method.scored import Scored
from models.parts.advantage.anchored import Anchored
from models.parts.advantage.redistributed import Redistributed, summing_to
from models.parts.advantage.turn_critic import TurnCritic
from models.parts.advantage.turn_returns import TurnReturns, over_their_mean
from models.parts.rewards.episodes.turn_rewards import TurnRewards
from models.parts.shared.of_turns import earned_by_turn, turns_of
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_resources import make_resources

Gradient = dict[tuple[int, int], float]
LOGITS = {0: (-0.1, 0.2), 1: (0.2, 0.2)}


def chances(state: int) -> list[float]:
    weights = [math.exp(logit) for logit in LOGITS[state]]
    return [weight / sum(weights) for weight in weights]


@dataclass(frozen=True)
class Path:
    """One episode of the process, with its probability."""

    steps: tuple[tuple[int, int, float], ...]
    """State, action and reward of each turn."""
    chance: float

    def rollout(self) -> Rollout:
        """Return the episode as a rollout: turns of one token, with one token of the environment between them."""
        turns = tuple(
            Turn(2 * number, 2 * number + 1, reward, str(state)) for number, (state, _, reward) in enumerate(self.steps)
        )
        (_, first, _), (state, second, _) = self.steps
        ids, trained = (4 + first, 6 + state, 8 + second), (True, False, True)
        return Rollout(
            Problem("p", "", tokens=(3,)),
            0,
            ids,
            torch.zeros(3),
            "",
            True,
            trained=trained,
            episode=RolloutEpisode(turns=turns),
        )


PATHS = [
    Path(
        ((0, first, 0.3 * (first == 1)), (state, second, float(second == state))),
        chances(0)[first] * (0.8 if state == first else 0.2) * chances(state)[second],
    )
    for first, state, second in itertools.product((0, 1), repeat=3)
]


def score_of(state: int, action: int) -> Gradient:
    return {(state, other): (other == action) - chances(state)[other] for other in (0, 1)}


def summed(terms: list[tuple[float, Gradient]]) -> Gradient:
    total: Gradient = {(state, action): 0.0 for state in (0, 1) for action in (0, 1)}
    for weight, gradient in terms:
        for key, value in gradient.items():
            total[key] += weight * value
    return total


TRUE = summed(
    [
        (path.chance * sum(reward for *_, reward in path.steps), score_of(state, action))
        for path in PATHS
        for state, action, _ in path.steps
    ]
)


def scored_pair(pair: tuple[Path, ...]) -> Scored:
    rollouts = [path.rollout() for path in pair]
    tokens = [
        torch.tensor([path.steps[0][2], 0.0, path.steps[1][2]], dtype=torch.float64) for path in pair
    ]  # float64, because the test compares to 1e-12
    said = TurnRewards().tokens(make_resources(), rollouts)
    assert all(torch.equal(row.float(), other) for row, other in zip(tokens, said, strict=True))
    return Scored(rollouts, torch.stack([row.sum() for row in tokens]), {}, {}, tokens)


def expected(advantage: Callable[[Scored], list[Tensor]]) -> Gradient:
    """Return the mean over pairs of episodes of the sum over turns of advantage * grad log pi, per episode."""
    terms = []
    for pair in itertools.product(PATHS, repeat=2):
        chance = math.prod(path.chance for path in pair)
        for path, row in zip(pair, advantage(scored_pair(pair)), strict=True):
            for number, (state, action, _) in enumerate(path.steps):
                terms.append((chance / len(pair) * float(row[2 * number]), score_of(state, action)))
    return summed(terms)


def of_part(part: Advantage) -> Callable[[Scored], list[Tensor]]:
    return lambda scored: list(part(make_resources(), scored).tokens)


def gap(estimate: Gradient) -> float:
    return max(abs(estimate[key] - TRUE[key]) for key in TRUE)


def test_the_true_gradient_is_that_of_finite_differences() -> None:
    def value(logits: dict[int, tuple[float, float]]) -> float:
        def chance(state: int, action: int) -> float:
            weights = [math.exp(logit) for logit in logits[state]]
            return weights[action] / sum(weights)

        total = 0.0
        for first, state, second in itertools.product((0, 1), repeat=3):
            moved = 0.8 if state == first else 0.2
            total += chance(0, first) * moved * chance(state, second) * (0.3 * (first == 1) + (second == state))
        return total

    for state, action in TRUE:
        sides = []
        for step in (1e-5, -1e-5):
            moved = {s: tuple(x + step * ((s, a) == (state, action)) for a, x in enumerate(LOGITS[s])) for s in LOGITS}
            sides.append(value(moved))  # type: ignore[arg-type]
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(TRUE[state, action], abs=1e-9)
    assert max(map(abs, TRUE.values())) > 0.13


@pytest.mark.parametrize("part", [TurnReturns(), Anchored()], ids=lambda part: part.name)
def test_returns_of_turns_and_anchored_returns_give_the_true_gradient_on_average(part: Advantage) -> None:
    assert gap(expected(of_part(part))) <= 1e-12


def test_a_critic_of_turns_gives_it_whatever_it_says_where_lambda_is_one() -> None:
    from models.parts.advantage.gae import generalised_advantages
    from models.parts.shared.of_turns import at_tokens

    def advantage(scored: Scored) -> list[Tensor]:
        said = [
            torch.tensor([0.7 + len(turn.state), -1.3]).double()
            for r in scored.rollouts
            for turn in r.episode.turns[:1]
        ]
        turns = generalised_advantages(earned_by_turn(scored), said, 1.0, 1.0)
        return at_tokens(turns, scored.rollouts)

    assert gap(expected(advantage)) <= 1e-12


def test_gigpos_form_is_biased_and_changes_the_direction() -> None:
    estimate = expected(of_part(Anchored(form="gigpo", scale="none")))
    inner = sum(estimate[key] * TRUE[key] for key in TRUE)
    norms = [math.sqrt(sum(value**2 for value in gradient.values())) for gradient in (estimate, TRUE)]
    # a mean that includes the item itself shrinks both parts, but by different factors: no single factor corrects it
    best = {key: value * inner / norms[0] ** 2 for key, value in estimate.items()}
    assert gap(estimate) > 0.02 and gap(best) > 0.005 and inner / (norms[0] * norms[1]) < 0.999


def test_zero_for_a_turn_alone_in_its_state_would_be_biased() -> None:
    def advantage(scored: Scored) -> list[Tensor]:
        rows = of_part(Anchored())(scored)
        states = [[turn.state for turn in rollout.episode.turns] for rollout in scored.rollouts]
        for number, (row, mine) in enumerate(zip(rows, states, strict=True)):
            for place, state in enumerate(mine):
                if state not in states[1 - number]:
                    row[2 * place] = 0.0
        return rows

    assert gap(expected(advantage)) > 0.03


def test_gigpo_by_hand() -> None:
    """The episodes have the returns 1.3 and 0. The second turn of the second one is in the first state again."""
    scored = scored_pair((PATHS[7], PATHS[1]))
    plain = of_part(Anchored(form="gigpo", scale="none", omega=0.5))(scored)
    assert [path.steps for path in (PATHS[7], PATHS[1])] == [((0, 1, 0.3), (1, 1, 1.0)), ((0, 0, 0.0), (0, 1, 0.0))]
    # the returns from state 0 are 1.3, 0 and 0, with mean 1.3 / 3; from state 1 there is only 1.0
    assert plain[0].tolist() == pytest.approx([0.65 + 0.5 * (1.3 - 1.3 / 3), 0.0, 0.65])
    assert plain[1].tolist() == pytest.approx([-0.65 - 0.5 * 1.3 / 3, 0.0, -0.65 - 0.5 * 1.3 / 3])
    scaled = of_part(Anchored(form="gigpo", omega=0.0))(scored)
    assert scaled[0].tolist() == pytest.approx([1.0, 0.0, 1.0], abs=1e-3)


def test_returns_of_turns_by_hand_with_a_turn_that_nobody_else_has() -> None:
    long, short = PATHS[7].rollout(), PATHS[4].rollout()
    short = replace(short, episode=replace(short.episode, turns=short.episode.turns[:1]), completion=(4,), trained=None)
    scored = Scored([long, short], torch.tensor([1.3, 0.3]), {}, {}, [torch.tensor([0.3, 0, 1.0]), torch.tensor([0.3])])
    [first, other] = TurnReturns(gamma=0.5)(make_resources(), scored).tokens
    assert first.tolist() == pytest.approx([0.8 - 0.3, 0.0, 1.0]) and other.tolist() == pytest.approx([0.3 - 0.8])


def test_what_is_not_given_by_token_belongs_to_the_last_turn() -> None:
    rollout = PATHS[7].rollout()
    scored = Scored([rollout], torch.tensor([2.0]), {}, {}, [torch.tensor([0.3, 0.0, 0.5])])
    assert earned_by_turn(scored)[0].tolist() == pytest.approx([0.3, 1.7])


@pytest.mark.parametrize(("by", "field"), [("declared", "duration"), ("measured", "seconds")])
def test_equal_durations_change_nothing_and_unequal_ones_weigh_the_turns(by: Any, field: str) -> None:
    scored = scored_pair((PATHS[7], PATHS[2]))
    plain = of_part(TurnReturns())(scored)
    for seconds, weights in (
        ((2.0,) * 4, (1.0,) * 4),
        ((0.0,) * 4, (1.0,) * 4),
        ((1.0, 3.0, 1.0, 3.0), (0.5, 1.5) * 2),
    ):
        left = iter(seconds)
        timed = [
            replace(rollout, episode=replace(rollout.episode, turns=turns))
            for rollout in scored.rollouts
            for turns in [tuple(turn._replace(**{field: next(left)}) for turn in rollout.episode.turns)]  # type: ignore[arg-type]
        ]
        weighed = of_part(TurnReturns(durations=by))(replace(scored, rollouts=timed))
        rows = [row[::2] for row in plain]
        assert torch.cat([row[::2] for row in weighed]).tolist() == pytest.approx(
            (torch.cat(rows) * torch.tensor(weights)).tolist()
        )
    assert torch.cat(over_their_mean([torch.tensor([1.0]), torch.tensor([3.0])])).tolist() == [0.5, 1.5]


def test_shares_add_up_to_the_outcome_whatever_the_estimator_says() -> None:
    assert summing_to(torch.tensor([0.5, 0.25]), torch.tensor(1.0)).tolist() == [0.625, 0.375]
    learner, part = new_learner(SCHEDULE), Redistributed(critic=CriticSettings())
    companion = part.accompany(learner.policy)
    learner.companions[part.companion] = companion
    resources = make_resources(learner=learner)
    scored = scored_pair((PATHS[7], PATHS[2]))
    signal = part(resources, scored)
    whole = [float(row[0]) for row in signal.tokens]  # the first turn has all shares still to come
    rewards = scored.rewards.tolist()
    assert whole == pytest.approx([rewards[0] - rewards[1], rewards[1] - rewards[0]], abs=1e-6)
    errors = [part.learn(resources, scored, signal, 0)["squared_error"] for _ in range(30)]
    assert errors[-1] < 0.05 * errors[0]


@pytest.mark.rotating(of=6)
def test_a_critic_of_turns_learns_what_is_to_come_from_the_first_token_of_each_turn() -> None:
    """With lambda 0, the target of a turn is its reward plus the next value. The values reach the fixed point."""
    learner = new_learner(SCHEDULE)
    part = TurnCritic(critic=CriticSettings(epochs=4), gae_lambda=0.0, whiten=False)
    learner.companions[part.companion] = part.accompany(learner.policy)
    resources, scored = make_resources(learner=learner), scored_pair((PATHS[7], PATHS[7]))
    for number in range(60):
        signal = part(resources, scored)
        seen = part.learn(resources, scored, signal, number)
    assert isinstance(signal, Signal) and signal.returns is not None and seen["error"] < 0.1
    values: Any = part._values(resources, scored)
    assert [float(values[0][0]), float(values[0][2])] == pytest.approx([1.3, 1.0], abs=0.15)
    assert len(turns_of(scored.rollouts[0])) == 2
