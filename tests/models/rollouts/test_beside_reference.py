"""What must be true of samples of the reference beside the policy's, each test named as the theorem it checks."""

import pytest
import torch
from tiny_models import PROMPTS, plain_log_probs, tiny_policy
from tiny_worlds import make_world

from models.engine.engine import Generated
from models.errors import UserError
from models.learner.fused_log_probs import AS_IT_IS
from models.learner.packing import Sequences
from models.loop.learner import Learner
from models.loop.rollout import Problem
from models.rollouts.beside_reference import BesideReference

PROBLEMS = [Problem(f"p{number}", "", "7", 1, tuple(prompt)) for number, prompt in enumerate(PROMPTS)]
OWN = Generated((5, 1), torch.tensor([-0.5, -0.25]), True)


class Engine:
    """Answers every prompt alike."""

    def generate(self, prompts, sampling, seed):
        return [[OWN] * sampling.samples for _ in prompts]


def world(reference):
    learner = Learner(tiny_policy(seed=0, spread=3.0), None, reference, None, None, AS_IT_IS)
    return make_world(Engine(), learner=learner)


def test_every_group_holds_the_engines_completions_and_then_the_references():
    rollouts = BesideReference(group_size=2, references=3, max_tokens=6)(world(tiny_policy(seed=1)), PROBLEMS, 0)
    assert [one.group for one in rollouts] == [number for number in range(5) for _ in range(5)]
    assert [one.origin for one in rollouts] == (["policy"] * 2 + ["reference"] * 3) * 5
    assert all(one.problem is PROBLEMS[one.group] and one.trained is None for one in rollouts)
    assert all(one.completion == OWN.tokens for one in rollouts if one.origin == "policy")


def test_what_is_noted_of_the_references_completions_is_its_own_log_probs_not_the_policys():
    reference = tiny_policy(seed=1, spread=3.0)
    here = world(reference)
    drawn = [one for one in BesideReference(references=2, max_tokens=6)(here, PROBLEMS, 0) if one.origin == "reference"]
    sequences = Sequences([one.problem.tokens for one in drawn], [one.completion for one in drawn])
    noted = torch.cat([one.behaviour_log_probs for one in drawn]).double()
    torch.testing.assert_close(noted, torch.cat(plain_log_probs(reference, sequences)).detach(), rtol=0, atol=1e-5)
    under_policy = torch.cat(plain_log_probs(here.learner.policy, sequences)).detach()
    assert (noted - under_policy).abs().max() > 0.1


def test_a_round_can_be_repeated_and_another_round_is_another():
    source, here = BesideReference(references=4, max_tokens=6), world(tiny_policy(seed=1, spread=3.0))
    first, again, next_round = (
        [one.completion for one in source(here, PROBLEMS, number) if one.origin == "reference"] for number in (0, 0, 1)
    )
    assert first == again and first != next_round


def test_without_a_reference_it_is_refused():
    with pytest.raises(UserError, match="reference"):
        BesideReference()(world(None), PROBLEMS, 0)
