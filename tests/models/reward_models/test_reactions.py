"""A reward model of reactions: its loss by hand, simulated reactions, and a fit that learns their probability."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.reward_models.bare_texts import bare_prompts, is_bare, write_bare
from models.reward_models.fit import Pair, RewardModelSettings, accumulate, fit_reward_model, score_pairs
from models.reward_models.model import reward_model_from_policy
from models.reward_models.reactions import ReactionSettings, reaction_loss
from models.reward_models.scorer import open_scorer
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC
from tests.support.tiny_reward_models import tiny_reward_model, toy_pairs

FASTER = OptimiserSettings(learning_rate=5e-3, warmup_steps=5)


def test_the_loss_is_the_cross_entropy_of_each_by_itself() -> None:
    chosen = torch.tensor([math.log(3), 0.0], dtype=torch.float64)
    rejected = torch.tensor([0.0, -math.log(3)], dtype=torch.float64)
    liked = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    loss = reaction_loss(chosen, rejected, liked)  # probabilities 3/4, 1/2 and 1/2, 1/4
    expected = [(math.log(4 / 3) + math.log(2)) / 2, (math.log(2) + math.log(4)) / 2]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)


def test_its_gradient_is_the_chance_less_the_reaction_and_smoothing_moves_what_is_wanted() -> None:
    scores = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    reaction_loss(scores[:1], scores[1:], torch.tensor([[1.0, 0.0]]).double(), 0.1).sum().backward()
    wanted = torch.tensor([0.9, 0.1], dtype=torch.float64)
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad, (scores.detach().sigmoid() - wanted) / 2)


def test_a_margin_does_not_matter_where_a_level_does() -> None:
    liked = torch.tensor([[1.0, 0.0]])
    apart = [float(reaction_loss(torch.tensor([s]), torch.tensor([s - 2]), liked)) for s in (1.0, 5.0)]
    assert apart[0] < apart[1]  # the margin is equal, so a Bradley-Terry loss would be equal


def test_reactions_come_by_their_chances_and_the_same_answer_always_meets_the_same() -> None:
    settings = ReactionSettings(liked=0.3, mistaken=0.1)
    met = [settings.to_pair([n, 1], [n, 2], [n, 3]) for n in range(4000)]
    assert met == [settings.to_pair([n, 1], [n, 2], [n, 3]) for n in range(4000)]
    for side, chance in enumerate((0.3, 0.1)):
        mean = sum(pair[side] for pair in met) / 4000
        assert abs(mean - chance) < 4 * math.sqrt(chance * (1 - chance) / 4000)
    assert ReactionSettings().to_pair([1], [2], [3]) == (1.0, 0.0)
    with pytest.raises(ValueError, match="only where it is above mistaken"):
        ReactionSettings(liked=0.2, mistaken=0.2)


@pytest.mark.parametrize("budget", [14, 64])
def test_loss_and_gradient_do_not_depend_on_the_cut(budget: int) -> None:
    pairs, whole, cut = toy_pairs(13, seed=1), tiny_reward_model(torch.float64), tiny_reward_model(torch.float64)
    reactions = ReactionSettings(liked=0.6, mistaken=0.2)
    at_once = accumulate(whole, pairs, RewardModelSettings(reactions=reactions, token_budget=10**6))
    many = accumulate(cut, pairs, RewardModelSettings(reactions=reactions, token_budget=budget))
    torch.testing.assert_close(many, at_once, atol=1e-12, rtol=0.0)
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-8, rtol=1e-6)


@pytest.mark.rotating(of=6)
def test_what_is_learned_is_the_chance_of_a_reaction() -> None:
    pairs = [Pair([*prompt], [7, 1], [8, 1]) for prompt in itertools.product(range(10, 16), repeat=3)]
    model, reactions = tiny_reward_model(), ReactionSettings(liked=0.5, mistaken=0.0)
    settings = RewardModelSettings(steps=30, batch_pairs=32, reactions=reactions, optimiser=FASTER)
    fit_reward_model(model, pairs, settings, seed=0)
    chosen, rejected = (torch.sigmoid(scores) for scores in score_pairs(model, pairs))
    assert float(chosen.mean()) == pytest.approx(0.5, abs=0.1) and float(rejected.mean()) < 0.1


def test_a_margin_or_a_centre_beside_reactions_is_refused() -> None:
    with pytest.raises((ValidationError, UserError, ValueError), match="level of their own"):
        RewardModelSettings(reactions=ReactionSettings(), centring=0.01)
    with pytest.raises(UserError, match="a reaction is to one completion"):
        load_recipe("rluf", ["reward_model.strength={}"])
    with pytest.raises(UserError, match="parallel texts are not labelled preferences"):
        load_recipe("plain_words", ["reward_model.fit.reactions=null", "reward_model.strength={}"])


def test_a_reward_model_of_bare_texts_reads_no_prompt(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32), CODEC.tokenizer, tmp_path / "policy")
    model = reward_model_from_policy(tmp_path / "policy", seed=0, head_std=1.0)
    model.config.pad_token_id = CODEC.pad
    save_model_folder(model, CODEC.tokenizer, tmp_path / "model")
    texts = CODEC.completions(["3 4", "3 4"])

    def scored(prompts: list[str]) -> list[float]:
        scorer = open_scorer(tmp_path / "model", CODEC, token_budget=512, autocast_for=lambda model: None)
        return [float(value) for value in scorer(Sequences(CODEC.prompts(prompts), texts))]

    assert not is_bare(tmp_path / "model")
    first, second = scored(["1 + 2 =", "7"])
    assert first != second
    write_bare(tmp_path / "model")
    first, second = scored(["1 + 2 =", "7"])
    assert first == second == scored(["9", ""])[0]
    assert list(bare_prompts(2, 5)) == [(5,), (5,)]
