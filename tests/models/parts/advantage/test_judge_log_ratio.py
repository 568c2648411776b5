"""The log-ratio to a judge: the teacher's log-prob minus the policy's, discounted, from a model or a server."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner, Role
from models.method.resources import RunResources
from models.parts.advantage.judge_log_ratio import JudgeLogRatio
from models.parts.shared.token_advantages import discounted_to_go
from tests.support.tiny_models import plain_log_probs, scored, tiny_policy
from tests.support.tiny_resources import make_resources

SEQUENCES = Sequences([(3, 5), (3, 5)], [(6, 7, 1), (8, 1)])
CHOSEN = scored([0.0, 0.0], [2], sequences=SEQUENCES)


def resources_of(
    teachers: Mapping[Role, nn.Module], served: Callable[[Sequences], list[Tensor]] | None = None
) -> RunResources:
    policy = tiny_policy(spread=2.0)
    optimiser = torch.optim.SGD(policy.parameters())
    learner = Learner(policy, optimiser, None, None, None, MODEL_DISTRIBUTION, teachers=teachers, served_teacher=served)
    return make_resources(learner=learner)


def test_it_is_the_log_prob_of_the_teacher_less_that_of_the_policy() -> None:
    """The formula is that of TRL's SDPO in its sampled form, with the sign of an advantage."""
    teacher = tiny_policy(seed=1, spread=2.0, hidden=32)
    advantages = JudgeLogRatio(weight=2.0)(resources_of({"teacher": teacher}), CHOSEN).tokens
    ours, theirs = (plain_log_probs(model, SEQUENCES) for model in (tiny_policy(spread=2.0), teacher))
    for row, own, judged in zip(advantages, ours, theirs, strict=True):
        assert float((row - 2.0 * (judged - own).detach().cpu()).abs().max()) <= 1e-12


def test_with_a_discount_a_token_counts_what_follows_it() -> None:
    values = torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64)
    assert discounted_to_go(values, 0.5).tolist() == [1.0, 0.0, 4.0]
    assert discounted_to_go(values, 1.0).tolist() == [3.0, 2.0, 4.0]
    assert discounted_to_go(values, 0.0).tolist() == values.tolist()


def test_a_policy_that_is_its_teacher_has_no_advantage() -> None:
    advantages = JudgeLogRatio(discount=1.0)(resources_of({"teacher": tiny_policy(spread=2.0)}), CHOSEN).tokens
    assert max(float(row.abs().max()) for row in advantages) <= 1e-12


def test_a_served_teacher_is_asked_for_given_tokens_and_takes_the_place_of_a_model() -> None:
    asked = []

    def served(sequences: Sequences) -> list[Tensor]:
        asked.append(sequences)
        return [torch.full((len(ids),), -1.0, dtype=torch.float64) for ids in sequences.completions]

    advantages = JudgeLogRatio()(resources_of({}, served), CHOSEN).tokens
    assert [tuple(ids) for ids in asked[0].completions] == SEQUENCES.completions
    own = plain_log_probs(tiny_policy(spread=2.0), SEQUENCES)
    torch.testing.assert_close(advantages[0], -1.0 - own[0].detach().cpu(), rtol=0, atol=1e-12)


def test_without_a_teacher_it_refuses() -> None:
    with pytest.raises(UserError, match="the teacher is to judge"):
        JudgeLogRatio()(resources_of({}), CHOSEN)
