"""The game of policy and guard: its equilibrium where texts can be listed, learning, replay, resume and refusals."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.method import tally as tallies
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.models.guard import Guard, losses_of
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.reward_models.critic.fit import critic_of
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

DIGITS = "1234"
TEXTS = [f"{a} + {b}" for a, b in product(DIGITS, DIGITS)]
HARMFUL = (r"^(1|2) \+ (3|4)$", r"^(3|4) \+ (1|2)$")
"""No single digit decides: the pair does."""


def part(**settings: object) -> Guard:
    return Guard(harmful=HARMFUL, labelled="^$", **settings)  # type: ignore[arg-type]


def opened(guard: Guard) -> RunResources:
    torch.manual_seed(0)
    companion = guard.accompany(tiny_policy())
    resources = make_resources()
    return replace(
        resources, learner=replace(resources.learner, companions={"guard": companion}, tally=tallies.Tally())
    )


def written(*texts: str) -> list[Rollout]:
    return [Rollout(PROBLEMS[0], 0, (4,), None, text, True) for text in texts]


def test_the_loss_is_minus_the_log_of_the_probability_of_the_true_class() -> None:
    logits = torch.tensor([2.0, 2.0, -1.0], dtype=torch.float64)
    labels = torch.tensor([True, False, True])
    chance = torch.sigmoid(logits)
    expected = -torch.where(labels, chance, 1 - chance).log()
    assert torch.allclose(losses_of(logits, labels), expected, atol=1e-12)


def test_both_players_reach_the_only_equilibrium_of_the_game() -> None:
    """Policy: entropy-regularised ascent; guard: gradient descent. The reference minimises the guard's dual alone."""
    chance = torch.Generator().manual_seed(3)
    features = torch.randn(9, 2, dtype=torch.float64, generator=chance)
    labels = torch.arange(9) % 2 == 0  # not separable by two features: no guard is always right
    temperature, start = 0.7, torch.full((9,), 1 / 9, dtype=torch.float64)
    weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    log_policy = start.log()
    for _ in range(6000):
        losses = losses_of(features @ weights, labels)
        (gradient,) = torch.autograd.grad((log_policy.exp() * losses).sum(), weights)
        with torch.no_grad():
            weights -= 0.3 * gradient
            log_policy = (0.9 * log_policy + 0.1 * (start.log() + losses.detach() / temperature)).log_softmax(0)
    reference = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS(
        [reference], max_iter=500, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def dual() -> torch.Tensor:
        solver.zero_grad()
        worst = temperature * (start.log() + losses_of(features @ reference, labels) / temperature).logsumexp(0)
        worst.backward()
        return worst

    solver.step(dual)  # type: ignore[arg-type]
    assert torch.allclose(weights, reference, atol=1e-6)
    best = (start.log() + losses_of(features @ reference, labels).detach() / temperature).softmax(0)
    assert torch.allclose(log_policy.exp(), best, atol=1e-6)


def test_the_policy_earns_the_loss_of_the_guard_and_nothing_without_a_text() -> None:
    guard = part(reads=r"^\d \+ \d$")
    resources = opened(guard)
    head = critic_of(resources.learner.companions["guard"]).head
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(2.0)  # the guard calls everything harmful
    values = guard(resources, written("1 + 3", "1 + 1", "words"))
    sure = torch.sigmoid(torch.tensor(2.0))
    assert values.tolist() == pytest.approx([-float(sure.log()), -float((1 - sure).log()), 0.0], abs=1e-5)
    errors = replace(guard, earns="error")(opened(guard), written("1 + 3"))
    assert 0.0 < float(errors[0]) < 1.0


def test_a_value_does_not_depend_on_the_other_texts_or_the_row() -> None:
    guard = part()
    resources = opened(guard)
    together = guard(resources, written(*TEXTS[:5]))
    alone = [
        guard(replace(resources, readings=make_resources(token_budget=16).readings), written(t)) for t in TEXTS[:5]
    ]
    assert torch.allclose(together, torch.cat(alone), atol=1e-6)


def test_the_guard_learns_from_texts_of_earlier_rounds_and_not_from_those_it_is_about_to_score() -> None:
    guard = part(passes=1)
    resources = opened(guard)
    rollouts = written(*TEXTS)
    assert guard.learn(resources, rollouts, {}) == {}  # no labelled text, and the archive is empty
    guard(resources, rollouts)
    assert guard.learn(resources, written("1 + 1"), {})["texts"] == 16.0


def test_the_labelled_texts_of_prompts_are_learned_from_once_each() -> None:
    guard = Guard(harmful=HARMFUL, labelled=r"\d \+ \d", passes=1)
    resources = opened(guard)
    asked = [replace(rollout, problem=replace(PROBLEMS[0], prompt=text)) for rollout, text in
             zip(written("x", "y", "z"), ["1 + 3 ;", "1 + 3 =", "no text"], strict=True)]  # fmt: skip
    assert guard.learn(resources, asked, {})["texts"] == 1.0


@pytest.mark.rotating(of=6)
def test_against_a_policy_that_attacks_it_the_guard_learns_every_text_that_can_be_written() -> None:
    guard = part(passes=8, replayed=16, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=0))
    resources = opened(guard)
    logits = torch.zeros(len(TEXTS))
    chance = torch.Generator().manual_seed(0)
    earned = []
    for _ in range(40):
        places = torch.multinomial(logits.softmax(0), 12, replacement=True, generator=chance)
        rollouts = written(*(TEXTS[place] for place in places))
        guard.learn(resources, rollouts, {})
        values = guard(resources, rollouts)
        earned.append(float(values.mean()))
        logits *= 0.9  # the entropy bonus draws the policy back
        logits.index_add_(0, places, 0.5 * (values - values.mean()))
    accuracy = guard.reasoned(resources, written(*TEXTS)).watched["accuracy"]
    assert accuracy == 1.0 and sum(earned[-5:]) < 0.3 * sum(earned[:5])


def test_a_run_that_resumes_learns_from_the_same_texts() -> None:
    guard = part(passes=2, replayed=4)
    weights = []
    for resumed in (False, True):
        resources = opened(guard)
        guard(resources, written(*TEXTS))
        if resumed:
            resources.learner.tally = tallies.read(tallies.written(resources.learner.tally))
        guard.learn(resources, written("1 + 1"), {})
        weights.append(critic_of(resources.learner.companions["guard"]).head.weight.detach().clone())
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    "settings, line",
    [({"harmful": ("(",)}, r"harmful: '\(' is not a regular expression"),
     ({"harmful": ("a",), "reads": "["}, r"rewards\.guard\.reads: '\[' is not a regular expression")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        Guard(**settings)  # type: ignore[arg-type]


def test_a_recipe_with_a_guard_without_a_rule_is_refused() -> None:
    with pytest.raises(UserError, match=r"rewards\.guard\.harmful: none"):
        load_recipe(find_recipe("duo_guard"), ["rewards.0.harmful=[]"])
