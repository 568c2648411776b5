"""Values of actions on frozen features: on a logged chain they equal the values from dynamic programming."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.episode import Turn
from models.method.learner import Companion
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.parts.rewards.models.action_value import ActionValue
from models.reward_models.critic.action_values import ActionValues, fit_action_values, following_turns
from tests.support.device_here import DEVICE, placed
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

CHAIN = {("a", "go"): ("b", 0.0), ("b", "go"): ("c", 0.0), ("c", "go"): ("", 1.0), ("a", "stop"): ("", 0.3)}
"""Next state and reward of each state and action. One logged episode takes `go` three times, the other `stop` once."""
WORDS = {"a": 5, "b": 6, "c": 7, "go": 8, "stop": 9}


def dynamic_programming(gamma: float) -> dict[tuple[str, str], float]:
    """Return the values of the logged actions, computed backwards. The log has `go` in every later state."""
    values = {("c", "go"): 1.0, ("a", "stop"): 0.3}
    for state, following in (("b", "c"), ("a", "b")):
        values[state, "go"] = gamma * values[following, "go"]
    return values


def logged(actions: list[tuple[str, str]]) -> Rollout:
    """Make an episode in which the environment writes a word for each state; the first one is the end of the prompt."""
    ids: list[int] = []
    turns = []
    for number, (state, action) in enumerate(actions):
        ids += [WORDS[state]] * bool(number)
        turns.append(Turn(len(ids), len(ids) + 1))
        ids.append(WORDS[action])
    problem = Problem("p", "", tokens=(3, WORDS[actions[0][0]]))
    held = (False,) * len(ids)
    return Rollout(
        problem,
        0,
        tuple(ids),
        None,
        "",
        True,
        trained=held,
        episode=RolloutEpisode(turns=tuple(turns)),
        source=RolloutSource(origin="demonstration"),
    )


LONG, SHORT = logged([("a", "go"), ("b", "go"), ("c", "go")]), logged([("a", "stop")])


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_values_on_a_logged_chain_are_those_of_dynamic_programming(gamma: float) -> None:
    learner = new_learner(SCHEDULE)
    part = ActionValue(gamma=gamma, passes=40, optimiser=OptimiserSettings(learning_rate=0.003, warmup_steps=1))
    companion = learner.companions[part.companion] = part.accompany(learner.policy)
    resources = make_resources(learner=learner)
    outcome = torch.tensor([1.0, 0.3])
    before = [parameter.clone() for parameter in companion.model.get_submodule("backbone").parameters()]
    for _ in range(25):
        part.learn(resources, [LONG, SHORT], {"exact_answer": outcome})
    values = dynamic_programming(gamma)
    candidates = [
        Rollout(Problem("p", "", tokens=tokens), 1, (WORDS[action],), None, "", True)
        for tokens, action in (((3, 5), "go"), ((3, 5, 8, 6), "go"), ((3, 5, 8, 6, 8, 7), "go"), ((3, 5), "stop"))
    ]
    said = part(resources, [LONG, SHORT, *candidates]).tolist()
    expected = [values["a", "go"], values["b", "go"], values["c", "go"], values["a", "stop"]]
    assert said[2:] == pytest.approx(expected, abs=0.02) and said[:2] == pytest.approx([1.0, 0.3], abs=0.02)
    after = list(companion.model.get_submodule("backbone").parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_one_target_by_hand() -> None:
    """The target is r + gamma Q(following turn), with Q before the step; one pass reports the error before its step."""
    model = ActionValues(tiny_policy(seed=3))
    companion = Companion(model, build_optimiser(model, OptimiserSettings()))
    features = placed(torch.randn(3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    q = model.values(features).detach()
    following = following_turns([2, 1])
    assert following.tolist() == [1, -1, -1]
    target = torch.stack([0.5 * q[1], *torch.tensor([1.0, 0.25], device=DEVICE).double()])
    seen = fit_action_values(
        companion,
        features,
        torch.tensor([0.0, 1.0, 0.25]),
        placed(following),
        gamma=0.5,
        passes=1,
        optimiser=OptimiserSettings(),
        setting="here",
    )
    assert seen["squared_error"] == pytest.approx(float((q - target).square().mean()), abs=1e-12)


def fitted(features: Tensor, proposals: Tensor, conservative: float, passes: int) -> tuple[ActionValues, float]:
    """Fit to turns of reward 1 that end their episodes. Return the values, and how far proposals were above the log."""
    model = ActionValues(tiny_policy(seed=3))
    seen = fit_action_values(
        Companion(model, build_optimiser(model, OptimiserSettings())),
        features,
        torch.ones(len(features)),
        torch.full((len(features),), -1, device=DEVICE),
        gamma=1.0,
        passes=passes,
        optimiser=OptimiserSettings(learning_rate=0.01, warmup_steps=1),
        setting="here",
        proposals=proposals,
        conservative=conservative,
    )
    return model, seen["above"]


def test_the_conservative_term_by_hand() -> None:
    features = placed(torch.randn(2, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    proposals = placed(torch.randn(2, 3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
    model = ActionValues(tiny_policy(seed=3))
    q, proposed = model.values(features).tolist(), model.values(proposals).tolist()
    by_hand = sum(math.log(sum(math.exp(x) for x in row)) - of for row, of in zip(proposed, q, strict=True)) / 2
    assert fitted(features, proposals, 0.5, passes=1)[1] == pytest.approx(by_hand, abs=1e-12)


def test_a_turn_that_nobody_logged_ends_below_what_was_logged_where_the_fit_is_conservative() -> None:
    """Without the conservative term, nothing lowers the value of a turn that is not in the log."""
    chance = torch.Generator().manual_seed(1)
    features, apart = (placed(torch.randn(1, 64, dtype=torch.float64, generator=chance)) for _ in range(2))
    strange = features + apart
    proposals = torch.stack([features, strange], dim=1)

    def gap(conservative: float) -> float:
        model, _ = fitted(features, proposals, conservative, passes=100)
        return (model.values(features) - model.values(strange)).item()

    assert gap(0.5) > 1.0 and gap(0.5) > gap(0.0) + 1.0


def test_nothing_is_learned_where_nothing_is_logged() -> None:
    learner = new_learner(SCHEDULE)
    part = ActionValue()
    learner.companions[part.companion] = part.accompany(learner.policy)
    fresh = [replace(SHORT, source=replace(SHORT.source, origin="policy"))]
    assert part.learn(make_resources(learner=learner), fresh, {"exact_answer": torch.ones(1)}) == {}
