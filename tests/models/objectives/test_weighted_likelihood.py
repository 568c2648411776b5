"""What must be true of weighted likelihood, each test named as the theorem it checks."""

from dataclasses import replace
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


EXACT = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
"""What is right of 12 completions: some, none, some and all of a prompt."""
SCORES = torch.tensor([2.1, -0.3, 1.4, 0.2, 0.9, 0.1, -1.2, 1.8, 0.6, 0.3, -0.4, 1.1], dtype=torch.float64)
"""What a reward model says of them, and not always with reason."""
PROMPTS = [3, 3, 3, 3]


def taught_by(name):
    """Places of the completions that a recipe teaches, in order, their advantages and losses without any KL."""
    recipe = load_recipe(RECIPES / f"{name}.yaml")
    told = {one.label: EXACT if one.name == "exact_answer" else SCORES.sigmoid() for one in recipe.rewards}
    total = sum(one.weight * told[one.label] for one in recipe.rewards)
    places = torch.arange(len(EXACT), dtype=torch.float64)  # a component for the eye, which says who is who
    chosen = scored(total, PROMPTS, {**told, "place": places})
    for select in recipe.select:
        chosen = chosen.take(select(chosen))
    kept, order = chosen.components["place"].long().sort()
    advantage = recipe.advantage(None, chosen)[order]
    log_prob = -1.0 - kept.double() / 10
    loss, _ = replace(recipe.objective, kl=0.0)(log_prob, TokenBatch(advantage, log_prob, log_prob, None, kept))
    return kept, advantage, loss


def test_raft_is_oreal_without_negatives_and_kl_on_every_prompt_that_is_neither_all_right_nor_all_wrong():
    """Through all that either recipe selects and weighs, not through the objective alone."""
    (cloned, ones, raft), (kept, advantage, oreal) = taught_by("raft"), taught_by("oreal")
    assert (cloned // 3).tolist() == [0, 2, 3] and EXACT[cloned].min() == 1  # none of the prompt that has none right
    mixed, right = cloned < 9, advantage > 0  # of the last prompt, all right, OREAL learns nothing
    assert kept[right].tolist() == cloned[mixed].tolist()
    torch.testing.assert_close(advantage[right], ones[mixed])
    torch.testing.assert_close(oreal[right], raft[mixed])


def test_all_that_oreal_pushes_away_is_wrong_and_together_as_heavy_as_what_it_clones():
    kept, advantage, _ = taught_by("oreal")
    pushed = kept[advantage < 0]
    assert pushed.tolist() == [0, 7] and EXACT[pushed].max() == 0
    torch.testing.assert_close(advantage[kept < 3].sum(), torch.zeros((), dtype=torch.float64))


def test_a_strength_of_zero_silences_what_is_wrong_even_where_it_is_chosen():
    rewards = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    _, cloned = losses(BestOfN(worst=0), NoAdvantage(), WeightedLikelihood(), rewards, [3])
    _, silent = losses(BestOfN(worst=2), Balanced(strength=0.0), WeightedLikelihood(), rewards, [3])
    torch.testing.assert_close(silent, torch.cat([cloned, torch.zeros(2, dtype=torch.float64)]))
