"""Chains of answers with feedback: their tokens, the trained tokens, the loss, and the order of the answers."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.problem import KnownAnswer, Problem
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.parts.rollouts.hindsight import Hindsight
from models.recipes.load import load_recipe
from models.training.score import score
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_models import plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

RESOURCES = make_resources()
END = CODEC.end
BETTER, WORSE = (tuple(CODEC.completions([text])[0]) for text in ("4 + 7 #### 7", "1 #### 2"))
KNOWN = (KnownAnswer("chosen", BETTER, "4 + 7 #### 7"), KnownAnswer("rejected", WORSE, "1 #### 2"))
ASKED = [replace(problem, known=KNOWN) for problem in PROBLEMS]
WORDS: dict[str, Any] = {"bad": "; ;", "good": "+ ="}
BAD, GOOD = (tuple(ids[:-1]) for ids in CODEC.completions(["; ;", "+ ="]))


def chains(good_first: float, problems: Sequence[Problem] = ASKED, number: int = 0) -> list[Rollout]:
    return Hindsight(good_first=good_first, **WORDS)(RESOURCES, problems, number)


def test_each_answer_stands_behind_its_own_feedback_and_only_the_last_one_ends_the_sequence() -> None:
    for chain in chains(0.0):
        assert chain.completion == (*BAD, *WORSE[:-1], *GOOD, *BETTER)
    for chain in chains(1.0):
        assert chain.completion == (*GOOD, *BETTER[:-1], *BAD, *WORSE)


def test_exactly_the_tokens_of_the_answers_are_trained_on() -> None:
    for share in (0.0, 1.0):
        for chain in chains(share):
            assert chain.trained is not None
            trained = [token for token, flag in zip(chain.completion, chain.trained, strict=True) if flag]
            answers = [WORSE[:-1], BETTER] if share == 0.0 else [BETTER[:-1], WORSE]
            assert trained == [token for answer in answers for token in answer]
            assert not any(chain.trained[: len(BAD)])


def test_by_the_recipe_the_loss_is_the_likelihood_of_the_answers_given_the_feedback_and_nothing_else() -> None:
    rollouts, recipe = chains(0.5), load_recipe("chain_of_hindsight")
    policy = tiny_policy()
    before = copy.deepcopy(policy.state_dict())
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION)
    step = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
    settings = ScheduleSettings(rounds=1, optimiser=step)
    scored = score(RESOURCES, recipe.rewards, rollouts)
    for select in recipe.select:
        scored = scored.take(select(scored))
    assert len(scored.rollouts) == len(rollouts)
    metrics = fit_round(learner, recipe.objective, scored, recipe.advantage(RESOURCES, scored).tokens, settings, 64)

    plain = tiny_policy()
    rows = plain_log_probs(plain, scored.sequences)
    answers = [row[torch.tensor(rollout.trained)] for row, rollout in zip(rows, rollouts, strict=True)]
    loss = -torch.cat(answers).mean()
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()))
    for name, parameter in plain.named_parameters():
        actual = before[name] - policy.state_dict()[name]
        torch.testing.assert_close(actual, parameter.grad, rtol=1e-6, atol=1e-8)


def test_the_orders_follow_the_seed_and_the_round_and_the_share_that_is_set() -> None:
    many = ASKED * 50
    first = [chain.completion[: len(GOOD)] == GOOD for chain in chains(0.25, many, 3)]
    again = [chain.completion[: len(GOOD)] == GOOD for chain in chains(0.25, many, 3)]
    other = [chain.completion[: len(GOOD)] == GOOD for chain in chains(0.25, many, 4)]
    assert first == again != other and sum(first) / len(first) == pytest.approx(0.25, abs=0.1)


def test_feedbacks_that_the_tokenizer_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(UserError, match="are the same tokens"):
        Hindsight()(RESOURCES, ASKED, 0)  # the whole-word tokenizer knows none of these words
