"""A search that rewards of single steps guide: values of nodes, ends without an outcome, and refused settings."""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.models.surprisal import Surprisal
from models.parts.rewards.shaping.steps import Steps
from models.parts.rollouts.tree_search import TreeSearch
from models.recipes.load import load_recipe
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_models import plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

MARKS = ("+", "=", "7")
CURIOUS = Surprisal(moderate=2.0, width=1.0, incoherent=5.0, penalty=0.5)


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> RunResources:
    start: Path = save_start(tmp_path_factory.mktemp("start") / "policy")
    policy = tiny_policy(torch.float32, spread=3.0).requires_grad_(False)
    reference = tiny_policy(torch.float32, seed=5).requires_grad_(False)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=CODEC.ends)
    return make_resources(engine, learner=learner)


def searched(**settings: Any) -> TreeSearch:
    given: dict[str, Any] = {
        "prompts": 2, "group_size": 3, "nodes": 9, "max_tokens": 8, "marks": MARKS, "emit": "steps",
        "step_rewards": [CURIOUS],
    }  # fmt: skip
    return TreeSearch(**{**given, **settings})


def leaves(rollouts: list[Rollout]) -> list[Rollout]:
    """Return the steps after which no other step was tried."""
    begun = {rollout.problem.tokens for rollout in rollouts}
    return [rollout for rollout in rollouts if (*rollout.problem.tokens, *rollout.completion) not in begun]


def test_the_value_of_a_step_without_further_steps_is_its_reward(resources: RunResources) -> None:
    made = leaves(searched()(resources, PROBLEMS[:2], 0))
    assert len(made) > 6
    for rollout in made:
        [value] = CURIOUS(resources, [rollout]).clamp(0, 1).tolist()
        assert rollout.source.value == pytest.approx(value, abs=1e-5)
        assert rollout.episode.solved is None
    assert len({rollout.source.value for rollout in made}) > 3


def test_the_reward_reads_the_step_after_its_history(resources: RunResources) -> None:
    made = [rollout for rollout in leaves(searched()(resources, PROBLEMS[:2], 0)) if rollout.episode.history]
    assert made and resources.learner.reference is not None
    wholes = Sequences([rollout.problem.tokens for rollout in made], [rollout.completion for rollout in made])
    for rollout, row in zip(made, plain_log_probs(resources.learner.reference, wholes), strict=True):
        distance = (-float(row.mean()) - 2.0) / 1.0
        share = float((-row > 5.0).float().mean())
        expected = min(1.0, max(0.0, 2.718281828 ** (-distance * distance / 2) - 0.5 * share))
        assert rollout.source.value == pytest.approx(expected, abs=1e-3)


def test_rewards_are_added_by_weight_and_held_in_the_range_of_a_value(resources: RunResources) -> None:
    for weight, value in ((0.25, 0.25), (3.0, 1.0), (-1.0, 0.0)):
        source = searched(
            step_rewards=[Steps(most=1, weight=0.5 * weight), Steps(most=1, weight=0.5 * weight, label="b")]
        )
        made = leaves(source(resources, PROBLEMS[:2], 0))
        assert {rollout.source.value for rollout in made if rollout.text.strip(" ;")} == {value}


def test_with_a_share_below_one_outcomes_count_too(resources: RunResources) -> None:
    source = searched(step_rewards=[Steps(most=1)], reward_share=0.5)
    made = source(resources, PROBLEMS[:2], 0)
    ended = [rollout for rollout in leaves(made) if rollout.episode.solved is not None]
    assert ended and {rollout.source.value for rollout in ended if rollout.episode.solved is False} <= {0.0, 0.5}


def test_the_same_seed_gives_the_same_steps(resources: RunResources) -> None:
    first, again = (
        [(rollout.completion, rollout.source.value) for rollout in searched()(resources, PROBLEMS[:2], 1)]
        for _ in range(2)
    )
    assert first == again


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("rollouts.critic_share=0.5", "critic_share is 0.5, but step_rewards guide the search; leave one out"),
        (
            "rollouts.step_rewards=[{name: reward_model}]",
            "reward_model needs a model or a reward that a search does not",
        ),
        ("reference={name: none}", "rollouts tree_search needs a reference, but the recipe has none"),
        ("rollouts.step_rewards=[{name: surprisal, width: 0}]", "width"),
    ],
)
def test_settings_that_cannot_guide_a_search_are_refused_in_one_line(override: str, line: str) -> None:
    with pytest.raises(UserError, match=line) as caught:
        load_recipe("cosmos", [override])
    assert "\n" not in str(caught.value)
