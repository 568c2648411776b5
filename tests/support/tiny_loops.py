"""A complete small run of the loop, shared by the tests of its behaviour: policy, parts and diary.

The policy is a tiny real model, the engine is transformers' generate, and real checkpoints are written to disk.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.engines.engine import Engine, EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.judge import GenerativeJudge
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward, TokenReward
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.reference.frozen import Frozen
from models.parts.rollouts.sample import Sample
from models.parts.select.drop_flat import DropFlat
from models.policies.build import LoraSettings, with_adapter
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

TOKENIZER = CODEC.tokenizer
END = TOKENIZER.eos_token_id
TEXTS = ["1 + 2 =", "3 +", "4 + 5 + 6 =", "7", "8 = ;", "9 + 1 ="]
PROBLEMS = [
    Problem(f"p{number}", text, "7", 1, tuple(ids))
    for number, (text, ids) in enumerate(zip(TEXTS, CODEC.prompts(TEXTS), strict=True))
]
SCHEDULE = ScheduleSettings(
    rounds=6,
    epochs=2,
    minibatches=2,
    checkpoint_every=2,
    samples_every=3,
    optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=3, decay="linear"),
)


class Sevens(Reward):
    """Share of a completion's words that are 7."""

    name = "sevens"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        words = [rollout.text.split() for rollout in rollouts]
        return torch.tensor([actual.count("7") / max(1, len(actual)) for actual in words])


class PaidSevens(TokenReward):
    """A fifth at each token that is 7, so that a completion that was cut has rewards too."""

    name = "paid_sevens"

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        [seven] = resources.codec.inside(["7"])[0]
        return [0.2 * (torch.tensor(rollout.completion) == seven).float() for rollout in rollouts]


@dataclass(frozen=True, kw_only=True)
class Brief(Reward):
    """One minus the completion's length divided by the maximum length, 5 tokens."""

    name = "brief"
    weight: float = 0.1

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor([1.0 - len(rollout.completion) / 5 for rollout in rollouts])


SLOTS = Slots(
    Sample(prompts=4, group_size=4, max_tokens=5),
    [Sevens(), Brief()],
    [DropFlat()],
    GroupRelative(),
    Grpo(kl=0.01),
    Frozen(),
)


def save_start(folder: Path) -> Path:
    """Save the policy that every run begins with as a model folder."""
    save_model_folder(tiny_policy(torch.float32, spread=3.0), TOKENIZER, folder)
    return folder


def new_learner(schedule: ScheduleSettings, lora: bool = False) -> Learner:
    policy: Any = tiny_policy(torch.float32, spread=3.0)
    if lora:
        policy = with_adapter(policy, LoraSettings(rank=4), seed=0)
        return Learner(
            policy, build_optimiser(policy, schedule.optimiser), None, policy.disable_adapter, None, MODEL_DISTRIBUTION
        )
    reference = copy.deepcopy(policy).requires_grad_(False)
    return Learner(policy, build_optimiser(policy, schedule.optimiser), reference, None, None, MODEL_DISTRIBUTION)


@dataclass
class Diary:
    """A record of everything that the loop reports to its watchers."""

    metrics: dict[int, dict[str, float]]
    samples: dict[int, list[dict[str, object]]]
    resumed: list[int]

    def watchers(self, killed_in: int | None = None) -> Watchers:
        def metrics(number: int, values: dict[str, float]) -> None:
            self.metrics[number] = values
            if number == killed_in:
                raise KeyboardInterrupt

        return Watchers(metrics, self.samples.__setitem__, self.resumed.append)


def run(
    start: Path,
    checkpoints: Path,
    *,
    schedule: ScheduleSettings = SCHEDULE,
    slots: Slots = SLOTS,
    lora: bool = False,
    killed_in: int | None = None,
    engine: Callable[..., Engine] = TransformersEngine,
    problems: Sequence[Problem] = PROBLEMS,
    learner: Learner | None = None,
    codec: Codec = CODEC,
    judge: GenerativeJudge | None = None,
) -> tuple[Learner, Diary]:
    """Run the loop as in a new process. Return the learner and the diary."""
    torch.manual_seed(12345 + len(str(checkpoints)))  # the state of the global generator must not matter
    learner, diary = learner or new_learner(schedule, lora), Diary({}, {}, [])
    resources = make_resources(
        engine(start, EngineSettings(precision="float32"), end=codec.ends), learner=learner, codec=codec, judge=judge
    )
    try:
        run_loop(resources, slots, schedule, problems, checkpoints, diary.watchers(killed_in))
    except KeyboardInterrupt:
        assert killed_in is not None
    return learner, diary


def same_weights(first: Learner, other: Learner) -> bool:
    left, right = first.policy.state_dict(), other.policy.state_dict()
    return all(torch.equal(left[name], right[name]) for name in left)
