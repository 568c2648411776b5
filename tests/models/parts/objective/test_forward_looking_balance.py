"""Forward-looking balance on an enumerated tree: the target, its gradient, other balances as limits, and beginnings."""

from itertools import product

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.advantage.flow import balanced, flow_targets
from models.parts.objective.forward_looking_balance import ForwardLookingBalance
from models.recipes.load import load_recipe
from tests.support.tiny_batches import gradient_of, sampled_batch

WIDTH, DEPTH, BETA = 3, 3, 0.5
LEAVES = list(product(range(WIDTH), repeat=DEPTH))
NODES = [node for depth in range(DEPTH) for node in product(range(WIDTH), repeat=depth)]
"""Beginnings at which a token is drawn, 1 + 3 + 9; each has a row of logits and a flow."""
EDGES = [(*node, step) for node in NODES for step in range(WIDTH)]
PLACE = {node: number for number, node in enumerate(NODES)}
PAID = dict(
    zip(EDGES, torch.rand(len(EDGES), dtype=torch.float64, generator=torch.Generator().manual_seed(2)), strict=True)
)
"""Reward that is paid at each token, by the beginning that it ends."""
BOTH = torch.log_softmax(
    torch.randn(len(NODES), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(4)), -1
)
"""Log-probs of the reference, [nodes, width]."""


def target(prior: float) -> Tensor:
    """Return the probability of each leaf in proportion to p0^prior exp(r / beta), by enumeration, [leaves]."""
    logs = []
    for leaf in LEAVES:
        steps = [leaf[: depth + 1] for depth in range(DEPTH)]
        reward = sum(float(PAID[step]) for step in steps) / BETA
        logs.append(reward + prior * sum(float(BOTH[PLACE[step[:-1]], step[-1]]) for step in steps))
    return torch.tensor(logs, dtype=torch.float64).softmax(0)


def rows(values: Tensor, leaves: list[tuple[int, ...]], upto: int = DEPTH) -> list[Tensor]:
    """Return values of nodes or edges along the paths to the leaves, [leaves] tensors of [tokens of it]."""
    made = []
    for leaf in leaves:
        places = torch.tensor([PLACE[leaf[:depth]] for depth in range(upto)])
        made.append(values[places] if values.dim() == 1 else values[places, torch.tensor(leaf[:upto])])
    return made


def earned(leaves: list[tuple[int, ...]], prior: float, upto: int = DEPTH) -> list[Tensor]:
    paid = [torch.stack([PAID[leaf[: depth + 1]] for depth in range(upto)]) / BETA for leaf in leaves]
    return [row + prior * other for row, other in zip(paid, rows(BOTH, leaves, upto), strict=True)]


def leaf_probabilities(logits: Tensor) -> Tensor:
    return torch.stack([row.sum() for row in rows(logits.log_softmax(-1), LEAVES)]).exp()


def variation(first: Tensor, other: Tensor) -> float:
    return 0.5 * float((first - other).abs().sum())


def exact_flows(prior: float) -> Tensor:
    """Return log F~ of each node by summing over the leaves below it, [nodes]."""
    flows = torch.zeros(len(NODES), dtype=torch.float64)
    for node in NODES:
        below = [leaf for leaf in LEAVES if leaf[: len(node)] == node]
        flows[PLACE[node]] = torch.stack([row[len(node) :].sum() for row in earned(below, prior)]).logsumexp(0)
    return flows


def exact_policy(prior: float) -> Tensor:
    """Return the logits of the policy that samples the target, [nodes, width]."""
    flows, logits = exact_flows(prior), torch.zeros(len(NODES), WIDTH, dtype=torch.float64)
    for edge in EDGES:
        after = flows[PLACE[edge]] if edge in PLACE else torch.tensor(0.0)
        logits[PLACE[edge[:-1]], edge[-1]] = PAID[edge] / BETA + prior * BOTH[PLACE[edge[:-1]], edge[-1]] + after
    return logits


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("prior", "flow_lambda"), [(0.0, 0.0), (1.0, 0.9)])
def test_trained_on_the_enumerated_loss_it_samples_in_proportion_to_the_reward(
    prior: float, flow_lambda: float
) -> None:
    """Policy and flows learn together from leaves that another, uniform, policy draws."""
    logits = torch.zeros(len(NODES), WIDTH, dtype=torch.float64, requires_grad=True)
    flows = torch.zeros(len(NODES), dtype=torch.float64, requires_grad=True)
    ends, gains = torch.zeros(len(LEAVES), dtype=torch.float64), earned(LEAVES, prior)
    optimiser = torch.optim.Adam([logits, flows], lr=0.05)
    begun = variation(leaf_probabilities(logits.detach()), target(prior))
    objective = ForwardLookingBalance()
    for _ in range(400):
        log_probs, held = rows(logits.log_softmax(-1), LEAVES), rows(flows.detach(), LEAVES)
        wanted = torch.cat(balanced(gains, held, ends))
        mine = torch.cat(log_probs)
        loss, _ = objective(mine, sampled_batch(wanted, mine.detach()))
        aims = flow_targets(gains, [row.detach() for row in log_probs], held, ends, flow_lambda)
        error = 0.5 * (torch.cat(rows(flows, LEAVES)) - torch.cat(aims)) ** 2
        optimiser.zero_grad()
        (loss.sum() + error.sum()).backward()
        optimiser.step()
    assert begun > 0.1 and variation(leaf_probabilities(logits.detach()), target(prior)) < 0.01
    torch.testing.assert_close(flows.detach(), exact_flows(prior), atol=0.02, rtol=0)


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_the_residual_is_zero_at_the_target_with_its_flows_and_nowhere_near_it(prior: float) -> None:
    logits, flows = exact_policy(prior), exact_flows(prior)
    torch.testing.assert_close(leaf_probabilities(logits), target(prior))
    gains, ends = earned(LEAVES, prior), torch.zeros(len(LEAVES))
    wanted = torch.cat(balanced(gains, rows(flows, LEAVES), ends))
    mine = torch.cat(rows(logits.log_softmax(-1), LEAVES))
    assert float((mine - wanted).abs().max()) < 1e-12
    aims = flow_targets(gains, rows(logits.log_softmax(-1), LEAVES), rows(flows, LEAVES), ends, 0.7)
    torch.testing.assert_close(torch.cat(aims), torch.cat(rows(flows, LEAVES)))
    shifted = torch.cat(rows((logits + 0.3 * BOTH).log_softmax(-1), LEAVES))
    assert float(ForwardLookingBalance()(shifted, sampled_batch(wanted, shifted))[0].mean()) > 1e-3


def test_beginnings_that_were_cut_balance_with_the_flow_at_their_end() -> None:
    """No leaf is seen. With the flow after two tokens, the policy of the first two tokens becomes the target's."""
    flows, short = exact_flows(0.0), sorted({leaf[:2] for leaf in LEAVES})
    ends = torch.stack([flows[PLACE[begun]] for begun in short])
    wanted = torch.cat(balanced(earned(short, 0.0, 2), rows(flows, short, 2), ends))
    logits = torch.zeros(len(NODES), WIDTH, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for _ in range(200):
        mine = torch.cat(rows(logits.log_softmax(-1), short, 2))
        optimiser.zero_grad()
        ForwardLookingBalance()(mine, sampled_batch(wanted, mine.detach()))[0].sum().backward()
        optimiser.step()
    seen = [PLACE[node] for node in NODES if len(node) < 2]
    assert float((logits.detach().softmax(-1) - exact_policy(0.0).softmax(-1))[seen].abs().max()) < 1e-3


def test_the_residuals_of_a_completion_add_up_to_that_of_trajectory_balance() -> None:
    flows = torch.randn(len(NODES), dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    logits = torch.randn(len(NODES), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    gains, mine = earned(LEAVES, 1.0), rows(logits.log_softmax(-1), LEAVES)
    wanted = balanced(gains, rows(flows, LEAVES), torch.zeros(len(LEAVES)))
    for have, want, gain in zip(mine, wanted, gains, strict=True):
        torch.testing.assert_close((have - want).sum(), flows[0] + have.sum() - gain.sum())


def test_the_targets_of_the_flows_by_hand() -> None:
    earn, mine, flow = (torch.tensor(row, dtype=torch.float64) for row in ([1.0, 3.0], [-0.5, -1.0], [2.0, 6.0]))
    ends = torch.tensor([0.5])
    # y is 1.5 and 4. After the last token 4 + 0.5; before the first 1.5 + 6, or 1.5 + 4.5, or the mean of both.
    for share, first in ((0.0, 7.5), (1.0, 6.0), (0.5, 6.75)):
        assert flow_targets([earn], [mine], [flow], ends, share)[0].tolist() == [first, 4.5]
    assert balanced([earn], [flow], ends)[0].tolist() == [1.0 + 6.0 - 2.0, 3.0 + 0.5 - 6.0]


def test_its_gradient_is_twice_the_residual() -> None:
    log_prob, wanted = torch.tensor([-1.0, -2.0]), torch.tensor([-0.5, -4.0])
    gradient = gradient_of(ForwardLookingBalance(), log_prob, sampled_batch(wanted, log_prob))
    torch.testing.assert_close(gradient, torch.tensor([-1.0, 4.0]))


def test_recipes_without_flows_or_with_bounded_ones_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"objective forward_looking_balance needs a flow; set advantage\.name to flow"):
        load_recipe("forward_looking_flows", ["advantage={name: group_relative}"])
    with pytest.raises(UserError, match=r"a flow has no bounds; set critic\.loss to mse"):
        load_recipe("forward_looking_flows", ["advantage.critic.loss=hl_gauss"])
    with pytest.raises(UserError, match="advantage flow needs a reference, but the recipe has none"):
        load_recipe("forward_looking_flows", ["reference={name: none}"])
