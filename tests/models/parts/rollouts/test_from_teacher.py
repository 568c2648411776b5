"""Completions that a teacher writes: the policy's share of them, answers from the data, and seeds."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import KnownAnswer
from models.method.resources import RunResources
from models.parts.rollouts.from_teacher import FromTeacher
from models.parts.rollouts.sample import Sample
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import contents, plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

SETTINGS: dict[str, Any] = {"prompts": 6, "group_size": 2, "max_tokens": 5}
TEXTS = ["#### 7", "4 + 7 #### 5"]
KNOWN = tuple(
    KnownAnswer("demonstration", tuple(ids), text) for ids, text in zip(CODEC.completions(TEXTS), TEXTS, strict=True)
)


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> RunResources:
    start = save_start(tmp_path_factory.mktemp("start") / "policy")
    policy, teacher = tiny_policy(torch.float32, spread=3.0), tiny_policy(torch.float32, seed=1, spread=3.0, hidden=32)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION)
    learner.teachers = {"teacher": teacher.requires_grad_(False)}
    return make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END), learner=learner)


def test_all_on_policy_it_is_plain_sampling(resources: RunResources) -> None:
    mixed = FromTeacher(on_policy=1.0, **SETTINGS)(resources, PROBLEMS, 3)
    assert contents(mixed) == contents(Sample(**SETTINGS)(resources, PROBLEMS, 3))


def test_without_the_policy_every_completion_is_the_teachers_and_no_engine_is_needed(resources: RunResources) -> None:
    part = FromTeacher(**SETTINGS)
    rollouts = part(replace(resources, engine=None), PROBLEMS, 0)
    assert not part.draws and part.needs_teacher == "model"
    assert [rollout.group for rollout in rollouts] == [number for number in range(6) for _ in range(2)]
    assert {rollout.source.origin for rollout in rollouts} == {"teacher"}
    sequences = Sequences(
        [rollout.problem.tokens for rollout in rollouts], [rollout.completion for rollout in rollouts]
    )
    for rollout, row in zip(rollouts, plain_log_probs(resources.learner.teachers["teacher"], sequences), strict=True):
        torch.testing.assert_close(rollout.behaviour_log_probs, row.detach().cpu(), rtol=1e-4, atol=1e-4)


def test_a_mixed_round_has_each_prompt_once_and_by_its_share_from_the_policy(resources: RunResources) -> None:
    part = FromTeacher(on_policy=0.5, **SETTINGS)
    origins = []
    for number in range(12):
        rollouts = part(resources, PROBLEMS, number)
        assert [rollout.group for rollout in rollouts] == [group for group in range(6) for _ in range(2)]
        assert all(rollout.problem is PROBLEMS[rollout.group] for rollout in rollouts)
        origins += [rollout.source.origin for rollout in rollouts]
    assert set(origins) == {"policy", "teacher"} and 0.3 < origins.count("policy") / len(origins) < 0.7


def test_where_the_data_answer_no_teacher_is_asked_and_each_prompt_has_one_answer(resources: RunResources) -> None:
    part = FromTeacher(on_policy=0.0, otherwise="demonstrations", **SETTINGS)
    rollouts = part(resources, [replace(problem, known=KNOWN) for problem in PROBLEMS], 0)
    assert part.needs_teacher is None and part.reads == "demonstrations"
    assert [rollout.group for rollout in rollouts] == list(range(6))
    assert {rollout.text for rollout in rollouts} <= set(TEXTS)


def test_the_same_seed_and_round_give_the_same_completions(resources: RunResources) -> None:
    part = FromTeacher(on_policy=0.5, **SETTINGS)
    first, again, next_round = (contents(part(resources, PROBLEMS, number)) for number in (3, 3, 4))
    assert first == again != next_round


def test_without_a_teacher_it_refuses(resources: RunResources) -> None:
    learner = replace(resources.learner, teachers={})
    with pytest.raises(UserError, match=r"set teacher\.path"):
        FromTeacher(**SETTINGS)(replace(resources, learner=learner), PROBLEMS, 0)
