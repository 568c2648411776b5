"""REFUEL: its optimum over all policies of a small decision process, and its mean over the pairs of a group."""

import itertools

import torch
from torch import Tensor

from models.parts.objective.refuel import Refuel
from tests.support.tiny_batches import make_batch

ETA = 1.7
OLD = torch.tensor([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]], dtype=torch.float64)
"""Probability of each action in each of three states: the first turn is in state 0, the second in 1 or 2."""
MOVES = torch.tensor([[0.8, 0.2], [0.1, 0.9]], dtype=torch.float64)
"""Probability of states 1 and 2 after each first action."""
FIRST, SECOND = (0.3, 0.0), ((1.0, 0.0), (0.2, 0.9))
"""Rewards of the first turn, and of the second in states 1 and 2."""


def outcomes() -> list[tuple[int, int, float, float]]:
    """Return every continuation from each turn: state, action, reward of the whole episode, and probability."""
    ways = []
    for action, state, then in itertools.product((0, 1), repeat=3):
        chance = OLD[0, action] * MOVES[action, state] * OLD[1 + state, then]
        ways.append((0, action, FIRST[action] + SECOND[state][then], float(chance)))
    before = 0.3  # reward of the turn that both branches share
    for state, action in itertools.product((0, 1), repeat=2):
        ways.append((1 + state, action, before + SECOND[state][action], float(OLD[1 + state, action])))
    return ways


def expected_loss(log_prob: Tensor) -> Tensor:
    """Return the expected loss over all pairs of branches, summed over states; log-probs are [states, actions]."""
    pairs = [(a, b) for a, b in itertools.product(outcomes(), repeat=2) if a[0] == b[0]]
    states = torch.tensor([way[0] for pair in pairs for way in pair])
    actions = torch.tensor([way[1] for pair in pairs for way in pair])
    rewards = torch.tensor([way[2] for pair in pairs for way in pair], dtype=torch.float64)
    chances = torch.tensor([a[3] * b[3] for a, b in pairs], dtype=torch.float64)
    count = len(states)
    batch = make_batch(
        torch.zeros(count, dtype=torch.float64),
        None,
        OLD.log()[states, actions],
        reward=rewards,
        group=torch.arange(count) // 2,
    )
    losses, _ = Refuel(eta=ETA)(log_prob[states, actions], batch)
    return (chances * losses).sum()


def best_policy() -> Tensor:
    """Return the policy that maximises the old policy's Q less 1/eta of the KL in each state, [states, actions]."""
    second = [torch.tensor(row, dtype=torch.float64) for row in SECOND]
    values = torch.stack([(OLD[1 + state] * second[state]).sum() for state in (0, 1)])
    first = torch.tensor(FIRST, dtype=torch.float64) + MOVES @ values
    return torch.softmax(OLD.log() + ETA * torch.stack([first, *second]), -1)


def test_its_optimum_is_the_policy_that_the_kl_holds_to_the_old_one() -> None:
    logits = OLD.log().clone().requires_grad_()
    optimiser = torch.optim.LBFGS([logits], lr=1.0, max_iter=500, tolerance_grad=1e-14, tolerance_change=0.0)

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = expected_loss(torch.log_softmax(logits, -1))
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.softmax(logits.detach(), -1), best_policy(), rtol=0, atol=1e-8)


def test_no_other_policy_has_more_of_q_less_the_kl() -> None:
    """The policy from the closed form is compared with 50 random ones in the objective that it maximises."""
    second = [torch.tensor(row, dtype=torch.float64) for row in SECOND]
    q = torch.stack([best_q(second), *second])

    def worth(policy: Tensor) -> Tensor:
        return (policy * (q - (policy / OLD).log() / ETA)).sum(-1)

    best = worth(best_policy())
    for number in range(50):
        other = torch.softmax(
            best_policy().log() + 0.3 * torch.randn(3, 2, generator=torch.Generator().manual_seed(number)).double(), -1
        )
        assert (worth(other) <= best + 1e-12).all()


def best_q(second: list[Tensor]) -> Tensor:
    values = torch.stack([(OLD[1 + state] * second[state]).sum() for state in (0, 1)])
    return torch.tensor(FIRST, dtype=torch.float64) + MOVES @ values


def test_a_group_of_more_is_the_mean_over_its_pairs_and_one_alone_has_no_loss() -> None:
    log_prob = torch.tensor([-1.0, -2.0, -0.5, -0.7], dtype=torch.float64)
    old = torch.tensor([-1.2, -1.5, -0.6, -0.1], dtype=torch.float64)
    reward = torch.tensor([1.0, 0.0, 0.5, 2.0], dtype=torch.float64)
    batch = make_batch(torch.zeros(4).double(), None, old, reward=reward, group=torch.tensor([0, 0, 0, 1]))
    losses, _ = Refuel(eta=ETA)(log_prob, batch)
    error = (log_prob - old) / ETA - reward
    by_hand = sum((error[i] - error[j]) ** 2 for i, j in ((0, 1), (0, 2), (1, 2))) / 3
    torch.testing.assert_close(losses, torch.stack([torch.as_tensor(by_hand), torch.zeros(()).double()]))


def test_of_two_branches_a_reward_that_both_have_changes_nothing() -> None:
    log_prob, old = torch.tensor([-1.0, -2.0]).double(), torch.tensor([-1.2, -1.5]).double()
    rewards, group = torch.tensor([1.0, 0.25]).double(), torch.zeros(2).long()
    both = [make_batch(0 * old, None, old, reward=rewards + more, group=group) for more in (0.0, 5.0)]
    first, other = (Refuel()(log_prob, batch)[0] for batch in both)
    torch.testing.assert_close(first, other)
