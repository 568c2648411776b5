"""Tests of a bandit: rewards depend on seed, pull and arm; regret is computed by hand; UCB has logarithmic regret."""

import math
from random import Random

import pytest
import torch

from models.agents.environments.bandit import Bandit
from models.agents.play.arms import arm_of, gaps, means_of
from models.base.errors import UserError
from models.datasets.schema import TURNS
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.episodes.regret import Regret
from models.parts.shared.regret import growth, regret
from models.task_sets.bandit import BanditSettings, pulled, ucb
from models.task_sets.drawing import make_rows
from tests.support.tiny_resources import make_resources

ARMS = Problem("p", "bandit 1", "0.2 0.9 0.4")


def play(turns: list[str], seed: int = 3) -> list[tuple[str, float, bool, bool, dict[str, object]]]:
    opened = Bandit(pulls=len(turns)).open(ARMS)
    opened.reset(seed)
    return [opened.step(turn) for turn in turns]


def test_what_a_pull_gives_hangs_on_seed_pull_and_arm_and_not_on_the_pulls_before() -> None:
    first, other = play(["a", "b", "b", "c"]), play(["c", "c", "b", "c"])
    assert first[2][:2] == other[2][:2] and first[3][:2] == other[3][:2]
    assert play(["b"] * 40) == play(["b"] * 40) != play(["b"] * 40, seed=4)


def test_an_arm_gives_as_often_as_its_mean_says() -> None:
    given = [answer[1] for answer in play(["b"] * 4000)]
    assert sum(given) / 4000 == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 4000))


def test_the_goal_is_the_best_arm_in_half_of_the_later_pulls() -> None:
    assert play(["a", "c", "b", "c"])[-1][4] == {"solved": True} and play(["b", "b", "c", "a"])[-1][4] == {
        "solved": False
    }
    assert play(["a", "b"])[0][2:] == (False, False, {}) and play(["a", "b"])[1][2] is True


def test_a_turn_that_names_no_arm_gives_nothing_and_is_told_so() -> None:
    assert play(["q", "b b"])[0][:3] == ("error: name an arm by its letter", 0.0, False)
    assert [arm_of(turn, 3) for turn in ("a", " c\n", "d", "", "ab", "A")] == [0, 2, None, None, None, None]


@pytest.mark.parametrize("answer", ["", "0.5", "0.5 high", "0.5 1.2"])
def test_a_problem_without_means_is_refused_by_a_line(answer: str) -> None:
    with pytest.raises(UserError, match="problem p: its answer is to be the means of 2 to 26 arms"):
        means_of(Problem("p", "", answer))


def episode(said: list[str]) -> Rollout:
    turns = tuple(Turn(2 * number, 2 * number + 1, text=turn) for number, turn in enumerate(said))
    count = 2 * len(said) - 1
    return Rollout(ARMS, 0, (5,) * count, torch.zeros(count), "", True, episode=RolloutEpisode(turns=turns))


def test_regret_of_pulls_by_hand_and_it_stands_at_the_turns_last_tokens() -> None:
    row = Regret().tokens(make_resources(), [episode(["b", "a", "?"])])[0]
    assert row.tolist() == pytest.approx([0.0, 0.0, -0.7, 0.0, -0.7])
    assert gaps(["c"], (0.2, 0.9, 0.4)) == [pytest.approx(0.5)]


def test_pulls_that_are_missing_lose_the_best_mean_and_none_is_cheaper_than_the_worst_arm() -> None:
    resources, ended_early = make_resources(), episode(["b", "a"])
    assert Regret(horizon=4).tokens(resources, [ended_early])[0].tolist() == pytest.approx([0.0, 0.0, -0.7 - 2 * 0.9])
    assert (
        Regret(horizon=2).tokens(resources, [ended_early])[0].sum()
        == Regret().tokens(resources, [ended_early])[0].sum()
    )
    whole, cut = (Regret(horizon=4).tokens(resources, [episode(["a"] * turns)])[0].sum() for turns in (4, 1))
    assert whole > cut


def test_the_slope_of_a_player_who_never_learns_is_its_gap_and_of_the_best_player_zero() -> None:
    resources, part = make_resources(), Regret(of="slope")
    rows = part.tokens(resources, [episode(["a"] * 12), episode(["b"] * 12), episode(["a", "b"])])
    assert [float(row.sum()) for row in rows] == pytest.approx([-0.7, 0.0, 0.0], abs=1e-6)


def test_the_fit_finds_the_terms_that_regret_is_made_of_and_the_fit_of_a_mean_is_the_mean_of_fits() -> None:
    steps = torch.arange(1, 200, dtype=torch.float64)
    first, other = 0.5 + 3 * steps.log() + 0.02 * steps, 1.0 + 0.7 * steps
    torch.testing.assert_close(growth(first), torch.tensor([0.5, 3.0, 0.02], dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(growth((first + other) / 2), (growth(first) + growth(other)) / 2, rtol=0, atol=1e-9)


def mean_regret(aimless: bool) -> torch.Tensor:
    """Return the mean regret of 40 episodes of 800 pulls, [800]."""
    random, means = Random(11), (0.2, 0.9, 0.4)
    total = torch.zeros(800, dtype=torch.float64)
    for _ in range(40):
        made = pulled(means, 800, (lambda seen: random.randrange(3)) if aimless else ucb, random)
        total += torch.tensor([max(means) - means[arm] for arm, _ in made], dtype=torch.float64).cumsum(0)
    return total / 40


def test_the_regret_of_ucb_grows_by_a_logarithm_and_that_of_pulls_by_chance_by_every_pull() -> None:
    oracle, aimless = growth(mean_regret(aimless=False)), growth(mean_regret(aimless=True))
    mean_gap = (0.7 + 0.5) / 3
    assert float(aimless[2]) == pytest.approx(mean_gap, abs=0.05 * mean_gap)
    assert abs(float(oracle[2])) < 0.05 * mean_gap
    assert 1.0 < float(oracle[1]) < 8 / 0.7 + 8 / 0.5  # the bound of Auer and others, 8 ln t / gap for each worse arm


def test_demonstrations_are_episodes_of_ucb_or_of_chance() -> None:
    settings = BanditSettings(
        problems={"train": 30, "validation": 5, "gate": 5}, demonstrations={"train": 60}, arms=3, pulls=8, aimless=0.5
    )
    rows = make_rows(settings)["demonstrations"]["train"]
    assert {row["flaw"] for row in rows} == {"none", "aimless"}
    for row in rows:
        turns = str(row["completion"]).split(TURNS)
        assert len(turns) == 15 and set(turns[::2]) <= set("abc") and set(turns[1::2]) <= set("01")
        if row["flaw"] == "none":
            seen: list[list[int]] = [[], [], []]
            for arm, given in zip(turns[::2], [*turns[1::2], "0"], strict=True):
                assert "abc"[ucb(seen)] == arm
                seen["abc".index(arm)].append(int(given))


def test_a_policy_trained_on_the_regret_itself_becomes_online_gradient_descent_without_regret() -> None:
    """Paper 79, smallest case: a decision is the projection of -eta times the past losses onto the simplex.

    This is lazy online gradient descent with step eta. Training on the regret alone finds eta; it starts at 0, where
    the decisions do not depend on the losses.
    """

    def decisions(eta: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
        before = losses.cumsum(-2) - losses
        gap = before[..., 1] - before[..., 0]
        first = (0.5 + eta * gap / 2).clamp(0, 1)  # projection for two actions
        return torch.stack([first, 1 - first], -1)

    def sequences(steps: int, seed: int) -> torch.Tensor:
        """Return losses of two actions, [512, steps, 2]; each sequence has its own probability for the first."""
        generator = torch.Generator().manual_seed(seed)
        chance = 0.5 + 0.4 * (2 * torch.rand(512, 1, generator=generator, dtype=torch.float64) - 1)
        first = (torch.rand(512, steps, generator=generator, dtype=torch.float64) < chance).double()
        return torch.stack([first, 1 - first], -1)

    eta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([eta], lr=0.01)
    steps = 64
    start = float(regret(decisions(eta.detach(), sequences(steps, 0)), sequences(steps, 0)).mean())
    for number in range(100):
        losses = sequences(steps, number)
        loss = regret(decisions(eta, losses), losses).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    trained = eta.detach()
    with torch.no_grad():
        for length in (64, 256):
            fresh = sequences(length, 1000)
            per_step = float(regret(decisions(trained, fresh), fresh).mean()) / length
            assert per_step < 0.25 * start / steps, "regret a step falls, where the start's does not"
            worst = regret(decisions(trained, fresh), fresh).max() / length
            assert float(worst) < 0.5 * 0.4
        lengths = [16, 64, 256]
        curve = [float(regret(decisions(trained, sequences(n, 2000)), sequences(n, 2000)).mean()) / n for n in lengths]
        assert curve[0] > curve[1] > curve[2]
    assert float(trained) > 0.05
