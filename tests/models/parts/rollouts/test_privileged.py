"""Samples whose judge reads more than the policy: the answer, a peer's completion, or a demonstration."""

from dataclasses import replace
from typing import Any

import pytest

from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import KnownAnswer
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.privileged import Privileged, Shows
from models.parts.rollouts.sample import Sample
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import contents
from tests.support.tiny_resources import CODEC, make_resources

SETTINGS: dict[str, Any] = {"prompts": 6, "group_size": 2, "max_tokens": 5}
CONTEXT = "{prompt} #### {shown} ;"


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> RunResources:
    start = save_start(tmp_path_factory.mktemp("start") / "policy")
    return make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END))


def test_the_policy_samples_from_the_plain_prompt_and_the_judge_reads_the_answer(resources: RunResources) -> None:
    part = Privileged(context=CONTEXT, **SETTINGS)
    rollouts = part(resources, PROBLEMS, 3)
    plain = [replace(rollout, source=replace(rollout.source, privileged=None)) for rollout in rollouts]
    assert contents(plain) == contents(Sample(**SETTINGS)(resources, PROBLEMS, 3))
    for rollout in rollouts:
        assert rollout.source.privileged is not None
        assert list(rollout.source.privileged) == CODEC.prompts([f"{rollout.problem.prompt} #### 7 ;"])[0]


def test_where_nothing_is_known_a_completion_carries_no_loss(resources: RunResources) -> None:
    rollouts = Privileged(context=CONTEXT, **SETTINGS)(resources, [replace(PROBLEMS[0], answer="")], 0)
    assert all(rollout.source.privileged is None and rollout.trained_tokens == 0 for rollout in rollouts)


def test_a_peer_is_the_first_right_completion_of_the_group_and_never_oneself() -> None:
    texts = ["#### 5", "1 #### 7", "2 #### 7"]
    rollouts = [Rollout(PROBLEMS[0], 0, (5, 1), None, text, finished=True) for text in texts]
    alone = Rollout(PROBLEMS[1], 1, (5, 1), None, "#### 7", finished=True)
    assert Privileged._peers([*rollouts, alone]) == ["1 #### 7", "2 #### 7", "1 #### 7", None]


def test_of_the_demonstrations_only_one_that_is_right_is_told(resources: RunResources) -> None:
    known = tuple(
        KnownAnswer("demonstration", tuple(ids), text)
        for ids, text in zip(CODEC.completions(["#### 5", "3 #### 7"]), ["#### 5", "3 #### 7"], strict=True)
    )
    part = Privileged(shows="demonstration", context="{prompt} ; {shown} ;", **SETTINGS)
    (rollout, _) = part(resources, [replace(PROBLEMS[0], known=known)], 0)
    assert part.reads == "demonstrations"
    assert rollout.source.privileged is not None
    assert list(rollout.source.privileged) == CODEC.prompts([f"{PROBLEMS[0].prompt} ; 3 #### 7 ;"])[0]


@pytest.mark.parametrize("shows", ["answer", "peer"])
def test_room_is_made_for_the_longest_context(resources: RunResources, shows: Shows) -> None:
    part = Privileged(shows=shows, context=CONTEXT, **SETTINGS)
    room = part.extra_tokens(CODEC, PROBLEMS)
    for rollout in part(resources, PROBLEMS, 0):
        if rollout.source.privileged is not None:
            assert len(rollout.source.privileged) <= len(rollout.problem.tokens) + room[rollout.group]
