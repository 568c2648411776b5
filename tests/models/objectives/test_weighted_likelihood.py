"""What must be true of weighted likelihood, each test named as the theorem it checks."""

from pathlib import Path

import torch
from tiny_models import scored

from models.advantages.balanced import Balanced
from models.advantages.reward import NoAdvantage
from models.loop.rollout import TokenBatch
from models.objectives.grpo import Grpo
from models.objectives.weighted_likelihood import WeightedLikelihood
from models.recipe.load import load_recipe
from models.selectors.best_of_n import BestOfN

LOG_PROB = torch.tensor([-1.0, -2.0, -0.3], dtype=torch.float64)
RECIPES = Path(__file__).resolve().parents[3] / "recipes"


def batch(advantage, reference=None):
    return TokenBatch(
        advantage=advantage,
        behaviour=torch.zeros_like(advantage),
        old=LOG_PROB[: len(advantage)],
        reference=reference,
        completion=torch.zeros(len(advantage), dtype=torch.long),
    )


def test_with_weights_of_one_it_is_the_negative_log_likelihood():
    loss, _ = WeightedLikelihood()(LOG_PROB, batch(torch.ones(3, dtype=torch.float64)))
    torch.testing.assert_close(loss, -LOG_PROB)


def test_its_gradient_is_reinforce_of_the_same_advantage_wherever_the_policy_is():
    log_prob = LOG_PROB.clone().requires_grad_()
    advantage = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    loss, _ = WeightedLikelihood()(log_prob, batch(advantage))
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), log_prob)[0], -advantage)


def test_the_kl_term_is_that_of_the_clipped_policy_gradient():
    reference = LOG_PROB + torch.tensor([0.4, -0.2, 0.1], dtype=torch.float64)
    seen = batch(torch.zeros(3, dtype=torch.float64), reference)
    torch.testing.assert_close(WeightedLikelihood(kl=0.3)(LOG_PROB, seen)[0], Grpo(kl=0.3)(LOG_PROB, seen)[0])


def losses(select, advantage, objective, rewards, sizes):
    """Chosen completions and their losses, one token each."""
    whole = scored(rewards, sizes)
    kept = select(whole)
    log_prob = -torch.arange(1.0, 1.0 + len(rewards), dtype=torch.float64)[kept]
    chosen = advantage(None, whole.take(kept))
    seen = TokenBatch(
        advantage=chosen,
        behaviour=log_prob,
        old=log_prob,
        reference=log_prob - 1.0,
        completion=torch.arange(len(kept)),
    )
    return kept, objective(log_prob, seen)[0]


def test_raft_is_oreal_without_negatives_and_kl():
    rewards, sizes = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64), [3, 2, 3]
    raft, oreal = load_recipe(RECIPES / "raft.yaml"), load_recipe(RECIPES / "oreal.yaml")
    best, full = raft.select[-1], oreal.select[-1]
    kept, loss = losses(best, raft.advantage, raft.objective, rewards, sizes)
    bare, bare_loss = losses(
        BestOfN(best=full.best, worst=0, least=full.least), Balanced(strength=0.0), WeightedLikelihood(), rewards, sizes
    )
    assert kept.tolist() == bare.tolist() == [1, 5]
    torch.testing.assert_close(loss, bare_loss)
    more, _ = losses(full, oreal.advantage, oreal.objective, rewards, sizes)
    assert set(kept.tolist()) < set(more.tolist())


def test_a_strength_of_zero_silences_what_is_wrong_even_where_it_is_chosen():
    rewards = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    _, cloned = losses(BestOfN(worst=0), NoAdvantage(), WeightedLikelihood(), rewards, [3])
    _, silent = losses(BestOfN(worst=2), Balanced(strength=0.0), WeightedLikelihood(), rewards, [3])
    torch.testing.assert_close(silent, torch.cat([cloned, torch.zeros(2, dtype=torch.float64)]))
