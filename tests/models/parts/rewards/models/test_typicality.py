"""Typicality of answers under the policy: it equals a direct computation, for any cut of the rows."""

import pytest
import torch
from torch import nn

from models.parts.rewards.models.typicality import Typicality
from models.parts.shared import next_token
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, scored, tiny_policy
from tests.support.tiny_resources import make_resources


def typical(policy: nn.Module, budget: int = 16384) -> list[float]:
    learner = new_learner(SCHEDULE)
    learner.policy = policy
    rollouts = scored([0.0] * 5, [1] * 5, sequences=SEQUENCES).rollouts
    return Typicality()(make_resources(learner=learner, token_budget=budget), rollouts).tolist()


def by_hand(policy: nn.Module) -> list[float]:
    """Return the mean over each completion's tokens, computed without packing, as TRL's aligned_logps does."""
    values = []
    for prompt, completion in zip(SEQUENCES.prompts, COMPLETIONS, strict=True):
        with torch.no_grad():
            logits = policy(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
        chance = logits.softmax(-1)
        mine = chance[torch.arange(len(completion)), torch.tensor(completion, device=DEVICE)].log()
        values.append(float((mine - (chance**2).sum(-1).log()).mean()))
    return values


@pytest.mark.parametrize("budget", [12, 16384])
def test_it_is_the_mean_log_prob_of_the_tokens_less_that_of_a_drawn_one_however_rows_are_cut(budget: int) -> None:
    policy = tiny_policy(spread=2.0)
    assert typical(policy, budget) == pytest.approx(by_hand(policy), rel=1e-5, abs=1e-6)


def test_it_does_not_depend_on_how_many_distributions_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy(spread=2.0)
    whole = typical(policy)
    monkeypatch.setattr(next_token, "BLOCK", 2)
    assert typical(policy) == pytest.approx(whole)


def test_a_policy_that_holds_all_tokens_equally_likely_finds_every_answer_typical() -> None:
    policy = tiny_policy()
    with torch.no_grad():
        policy.get_output_embeddings().weight.zero_()
    assert typical(policy) == pytest.approx([0.0] * 5, abs=1e-6)
