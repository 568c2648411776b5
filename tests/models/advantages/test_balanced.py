"""What must be true of balanced weights, each test named as the theorem it checks."""

from itertools import product

import pytest
import torch
from tiny_models import scored

from models.advantages.balanced import Balanced
from models.errors import UserError
from models.loop.rollout import Problem, Rollout, TokenBatch
from models.loop.slots import World
from models.objectives.weighted_likelihood import WeightedLikelihood
from models.recipe.load import load_recipe
from models.rewards.stack import score
from models.selectors.best_of_n import BestOfN

RIGHT = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
LOGITS = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64)


def test_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    found = Balanced()(None, scored(rewards, [4, 4]))
    wanted = torch.tensor([1.0, -1 / 3, -1 / 3, -1 / 3, 1.0, 1.0, 1.0, -3.0], dtype=torch.float64)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(Balanced(strength=0.5)(None, scored(rewards, [4, 4]))[1:4], wanted[1:4] / 2)


def test_in_a_whole_group_it_is_reward_less_mean_divided_by_the_share_of_failures():
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(Balanced()(None, scored(rewards, [5])), (rewards - 0.4) / 0.6)


def test_a_flat_group_and_a_completion_alone_are_cloned():
    assert Balanced()(None, scored(torch.tensor([0.3, 0.3, 0.3, 0.7]), [3, 1])).tolist() == [1.0] * 4


def test_rounding_makes_nothing_wrong():
    assert Balanced()(None, scored(torch.tensor([0.3, 0.3 - 1e-6, 0.3]), [3])).tolist() == [1.0] * 3


def expected_gradient(select, strength):
    """Mean gradient of the loss over all groups of three in which something is right, and with strength also wrong."""
    logits = LOGITS.clone().requires_grad_()
    log_prob = logits.log_softmax(0)
    total, chance = torch.zeros((), dtype=torch.float64), 0.0
    for actions in product(range(4), repeat=3):
        drawn = torch.tensor(actions)
        if RIGHT[drawn].max() == 0.0 or (strength and RIGHT[drawn].min() == 1.0):
            continue
        whole = scored(RIGHT[drawn], [3])
        kept = select(whole)
        advantage = Balanced(strength=strength)(None, whole.take(kept))
        nothing = torch.zeros_like(advantage)
        seen = TokenBatch(
            advantage=advantage, behaviour=nothing, old=nothing, reference=None, completion=torch.arange(len(kept))
        )
        loss, _ = WeightedLikelihood()(log_prob[drawn[kept]], seen)
        weight = float(log_prob[drawn].detach().sum().exp())
        total, chance = total + weight * loss.sum(), chance + weight
    (found,) = torch.autograd.grad(total / chance, logits)
    return found


def exact_gradient(of_chance):
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(of_chance((logits.softmax(0) * RIGHT).sum()), logits)[0]


def test_cloning_the_best_of_n_climbs_the_log_of_the_chance_to_be_right():
    torch.testing.assert_close(-expected_gradient(BestOfN(), 0.0), exact_gradient(torch.log))


@pytest.mark.parametrize("worst", [1, 2])
def test_cloning_with_balanced_negatives_climbs_the_log_odds_however_many_negatives_are_kept(worst):
    torch.testing.assert_close(-expected_gradient(BestOfN(worst=worst), 1.0), exact_gradient(torch.logit))


def through(recipe, texts, liked):
    """Indices of the completions that a recipe selects, and their advantages, of one prompt whose answer is 7.

    Args:
        recipe: name of the recipe.
        texts: the completions.
        liked: what a reward model says of them, where the recipe asks one, [completions].
    """
    slots = load_recipe(recipe)
    rollouts = [
        Rollout(Problem("p", "", "7"), 0, (place, 1), (0.0, 0.0), text, True) for place, text in enumerate(texts)
    ]
    here = World(None, None, lambda sequences: torch.tensor(liked), seed=0)
    chosen = score(here, slots.rewards, rollouts)
    for select in slots.select:
        chosen = chosen.take(select(chosen))
    return [one.completion[0] for one in chosen.rollouts], slots.advantage(here, chosen).tolist()


TEXTS = ["#### 3", "#### 7", "#### 7", "#### 4", "#### 7", "#### 5", "#### 6", "#### 2"]
LIKED = [9.0, -9.0, 9.0, 0.0, -1.0, 9.0, -9.0, 3.0]  # a reward model that likes wrong answers and no right one but one


def test_oreal_clones_one_right_answer_and_pushes_away_all_wrong_ones_and_no_right_one_whatever_a_model_likes():
    kept, advantage = through("oreal", TEXTS, LIKED)
    assert kept[0] == 1 and sorted(kept[1:]) == [0, 3, 5, 6, 7]
    assert advantage == pytest.approx([1.0] + [-1 / 5] * 5)


def test_raft_clones_one_right_answer_the_first():
    assert through("raft", TEXTS, LIKED) == ([1], [1.0])


def test_beside_another_reward_the_verdict_alone_tells_right_from_wrong():
    verdict = torch.tensor([1.0, 1.0, 0.0, 0.0])
    liked = torch.tensor([0.0, 1.0, 1.0, 0.0])
    held = scored(verdict + 0.6 * liked, [4], {"exact_answer": verdict})
    assert Balanced(by="exact_answer")(None, held).tolist() == [1.0, 1.0, -1.0, -1.0]
    with pytest.raises(UserError, match=r"advantage\.by: no reward is called judge; there are exact_answer"):
        Balanced(by="judge")(None, held)
