"""Distribution matching on a softmax bandit: exact gradients, the optimum, finite values, bias of small groups."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.divergence import Divergence, DivergenceToPosterior, share_of_divergence, slope
from models.recipes.load import load_recipe
from tests.support.tiny_batches import make_batch

KINDS = get_args(Divergence)
BETA = 0.5
PRIOR = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
REWARDS = torch.tensor([0.0, 1.0, 0.2, 0.7], dtype=torch.float64)
TARGET = PRIOR * torch.exp(REWARDS / BETA) / (PRIOR * torch.exp(REWARDS / BETA)).sum()
LOGITS = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64)
EACH_ONCE = torch.arange(4)


def group_of(actions: Tensor, behaviour: Tensor) -> TokenBatch:
    """Return a batch of one prompt with completions of one token."""
    count = len(actions)
    return make_batch(
        advantage=torch.zeros(count, dtype=torch.float64),
        behaviour=behaviour[actions],
        old=behaviour[actions],
        reference=PRIOR.log()[actions],
        reward=REWARDS[actions],
        group=torch.zeros(count, dtype=torch.long),
    )


def exact(policy: Tensor, kind: str) -> Tensor:
    """Return the divergence by its textbook definition."""

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return (p * (p / q).log()).sum()

    middle = (policy + TARGET) / 2
    return {
        "reverse_kl": lambda: kl(policy, TARGET),
        "forward_kl": lambda: kl(TARGET, policy),
        "jensen_shannon": lambda: kl(policy, middle) + kl(TARGET, middle),
        "total_variation": lambda: (policy - TARGET).abs().sum() / 2,
    }[kind]()


def stratified(logits: Tensor, kind: Divergence) -> tuple[Tensor, dict[str, Tensor]]:
    """Return loss and watched values for a uniform sampler that drew every action once, so that Z is exact."""
    uniform = torch.full((4,), 0.25, dtype=torch.float64).log()
    objective = DivergenceToPosterior(to=kind, beta=BETA, importance_ceiling=100.0)
    return objective(logits.log_softmax(0), group_of(EACH_ONCE, uniform))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_textbook_divergence_but_for_the_share_of_ones_own_baseline(
    kind: Divergence,
) -> None:
    logits = LOGITS.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(exact(logits.softmax(0), kind), logits)
    (gradient,) = torch.autograd.grad(stratified(logits, kind)[0].sum(), logits)
    torch.testing.assert_close(gradient, wanted * 4 / 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_watched_divergence_and_normaliser_are_the_true_ones_where_all_is_enumerated(kind: Divergence) -> None:
    _, watch = stratified(LOGITS, kind)
    torch.testing.assert_close(watch["divergence"], exact(LOGITS.softmax(0), kind)[None])
    torch.testing.assert_close(watch["log_normaliser"], (PRIOR * torch.exp(REWARDS / BETA)).sum().log()[None])


@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_is_the_derivative_of_f(kind: Divergence) -> None:
    ratio = torch.tensor([0.1, 0.7, 1.4, 9.0], dtype=torch.float64, requires_grad=True)
    ones = torch.ones_like(ratio)
    share = share_of_divergence(ratio.log(), ones, 1.0 / ratio, kind)
    (derivative,) = torch.autograd.grad((ratio * share).sum(), ratio)
    fixed = ratio.detach()
    torch.testing.assert_close(slope(fixed.log(), torch.ones_like(fixed), 1.0 / fixed, kind), derivative)


@pytest.mark.parametrize("size", [2, 3])
def test_reverse_kl_has_in_expectation_over_groups_exactly_the_gradient_of_kl_regularised_reward(size: int) -> None:
    """For any group size, the expected gradient of the loss is -grad(E[r] - beta KL(pi || prior)) / beta."""
    logits = LOGITS.clone().requires_grad_()
    policy = logits.softmax(0)
    goal = (policy * REWARDS).sum() - BETA * (policy * (policy / PRIOR).log()).sum()
    (wanted,) = torch.autograd.grad(goal, logits)
    log_prob, total = logits.log_softmax(0), torch.zeros((), dtype=torch.float64)
    for actions in product(range(4), repeat=size):
        drawn = torch.tensor(actions)
        loss, _ = DivergenceToPosterior(beta=BETA)(log_prob[drawn], group_of(drawn, log_prob.detach()))
        total = total + log_prob[drawn].detach().sum().exp() * loss.sum()
    (gradient,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(gradient, -wanted / BETA)


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_target_no_group_whatever_pushes_the_policy(kind: Divergence) -> None:
    for actions in product(range(4), repeat=3):
        drawn = torch.tensor(actions)
        log_prob = TARGET.log()[drawn].requires_grad_()
        loss, _ = DivergenceToPosterior(to=kind, beta=BETA)(log_prob, group_of(drawn, TARGET.log()))
        (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
        torch.testing.assert_close(gradient, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "tolerance"), [(kind, 0.01 if kind == "total_variation" else 1e-5) for kind in KINDS])
def test_descent_reaches_the_target(kind: Divergence, tolerance: float) -> None:
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    for step in range(600):
        (gradient,) = torch.autograd.grad(stratified(logits, kind)[0].sum(), logits)
        # total variation has a corner at the target, so only shrinking steps converge
        rate = 1.0 / (1.0 + 0.1 * step) if kind == "total_variation" else 1.0
        logits = (logits - rate * gradient).detach().requires_grad_()
    torch.testing.assert_close(logits.softmax(0), TARGET, atol=tolerance, rtol=0.0)


def test_no_completion_weighs_more_than_one_in_forward_kl_however_much_the_policy_lacks_it() -> None:
    """The first completion has p* / pi above 100,000. Self-normalised, (G - 1) / G * G / (G - 1) = 1 remains."""
    behaviour = torch.tensor([-14.0, -0.1, -2.0, -3.0], dtype=torch.float64)
    log_prob = behaviour.clone().requires_grad_()
    objective = DivergenceToPosterior(to="forward_kl", beta=BETA)
    (gradient,) = torch.autograd.grad(objective(log_prob, group_of(EACH_ONCE, behaviour))[0].sum(), log_prob)
    wanted = torch.tensor([-1.0, 1 / 3, 1 / 3, 1 / 3], dtype=torch.float64)
    torch.testing.assert_close(gradient, wanted, atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "moved",
    [
        (-120.0, -120.0, -120.0, -120.0),
        (120.0, 120.0, 120.0, 120.0),
        (0.0, -120.0, 120.0, 0.1),
        (-120.0, 0.0, 0.0, 0.0),
        (120.0, -120.0, -120.0, -120.0),
    ],
    ids=str,
)
def test_a_hundred_nats_and_more_from_the_sampler_all_is_finite(
    kind: Divergence, dtype: torch.dtype, moved: tuple[float, float, float, float]
) -> None:
    """The weight exp(-120) and the slope exp(240) are both outside the range of float32."""
    behaviour = torch.tensor([-150.0, -130.0, -140.0, -145.0], dtype=dtype)
    seen = group_of(EACH_ONCE, behaviour)
    seen = replace(seen, reference=behaviour + 1.0, reward=seen.reward.to(dtype), advantage=seen.advantage.to(dtype))
    log_prob = (behaviour + torch.tensor(moved, dtype=dtype)).requires_grad_()
    loss, watch = DivergenceToPosterior(to=kind, beta=BETA)(log_prob, seen)
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    assert loss.isfinite().all() and gradient.isfinite().all()
    assert all(value.isfinite().all() for value in watch.values())


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_target_nothing_is_pushed_though_somebody_else_sampled_and_weights_are_truncated(
    kind: Divergence,
) -> None:
    drawn, behaviour = torch.tensor([0, 1, 1, 3]), torch.tensor([-0.1, -5.0, -4.0, -9.0], dtype=torch.float64)
    log_prob = TARGET.log()[drawn].requires_grad_()
    loss, _ = DivergenceToPosterior(to=kind, beta=BETA)(log_prob, group_of(drawn, behaviour))
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    torch.testing.assert_close(gradient, torch.zeros(4, dtype=torch.float64))


def test_a_constant_added_to_all_rewards_of_a_prompt_changes_nothing() -> None:
    shifted = group_of(EACH_ONCE, LOGITS.log_softmax(0))
    lifted = replace(shifted, reward=shifted.reward + 3.0)
    log_prob = (LOGITS * 0.5).log_softmax(0)
    for kind in KINDS:
        objective = DivergenceToPosterior(to=kind, beta=BETA)
        torch.testing.assert_close(objective(log_prob, shifted)[0], objective(log_prob, lifted)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_pushes_of_a_group_sum_to_zero_whoever_sampled_it(kind: Divergence) -> None:
    seen = group_of(torch.tensor([0, 2, 2, 3]), torch.tensor([-0.4, -2.0, -2.0, -2.5], dtype=torch.float64))
    log_prob = LOGITS.log_softmax(0).requires_grad_()
    loss, _ = DivergenceToPosterior(to=kind, beta=BETA)(log_prob, seen)
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    torch.testing.assert_close(gradient.sum(), torch.zeros((), dtype=torch.float64))
    assert gradient.abs().max() > 0.01


def over_all_groups(size: int, kind: Divergence) -> tuple[Tensor, float, float]:
    """Return the expected gradient, log Z and watched bias of log Z over all groups of `size` draws."""
    logits = LOGITS.clone().requires_grad_()
    log_prob = logits.log_softmax(0)
    drawn = torch.cartesian_prod(*[torch.arange(4)] * size)
    chance = log_prob.detach()[drawn].sum(-1).exp()
    ones = group_of(drawn.flatten(), log_prob.detach())
    seen = replace(ones, group=torch.arange(len(drawn)).repeat_interleave(size))
    loss, watch = DivergenceToPosterior(to=kind, beta=BETA)(log_prob[drawn.flatten()], seen)
    (gradient,) = torch.autograd.grad((chance * loss).sum(), logits)
    return gradient, float((chance * watch["log_normaliser"]).sum()), float((chance * watch["normaliser_bias"]).sum())


@pytest.mark.parametrize("kind", ["jensen_shannon", "forward_kl"])
def test_small_groups_bias_the_gradient_and_the_run_says_by_how_much_log_z_lies_too_low(kind: Divergence) -> None:
    logits = LOGITS.clone().requires_grad_()
    (exactly,) = torch.autograd.grad(exact(logits.softmax(0), kind), logits)
    log_z = float((PRIOR * torch.exp(REWARDS / BETA)).sum().log())
    apart, watched = [], []
    for size in (4, 8):
        gradient, mean_log_z, bias = over_all_groups(size, kind)
        apart.append(float((gradient - exactly).norm() / exactly.norm()))
        watched.append(bias)
        assert bias == pytest.approx(log_z - mean_log_z, rel=0.3 if size == 4 else 0.03)
    assert apart[0] > 1.7 * apart[1] > 0.05  # the bias falls about as 1 / G
    assert watched[0] > watched[1]


def test_reverse_kl_has_no_such_bias_and_watches_none() -> None:
    assert "normaliser_bias" not in stratified(LOGITS, "reverse_kl")[1]


def test_the_recipe_of_f_dpg_draws_groups_large_enough() -> None:
    assert load_recipe("f_dpg").rollouts.group_size >= 32
