"""The reward stack: the weighted sum, its components, the verifier, and the learned reward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.rewards.models.learned import LearnedReward
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.training.score import score
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

ROLLOUTS = scored([0.0] * 4, [2, 2]).rollouts


@dataclass(frozen=True, kw_only=True)
class Given(Reward):
    """A reward with fixed values."""

    values: tuple[float, ...]

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor(self.values)


def resources(scorer: Callable[[Sequences], Tensor] | None = None) -> RunResources:
    return make_resources(scorer=scorer)


def test_the_weighted_sum_is_trained_on_and_every_component_is_kept_unweighted() -> None:
    first = Given(values=(1.0, 0.0, 1.0, 0.0), label="right", weight=2.0)
    second = Given(values=(0.5, 0.25, 0.0, 1.0), label="style", weight=-0.5)
    scored = score(resources(), [first, second], ROLLOUTS)
    assert scored.rewards.tolist() == [1.75, -0.125, 2.0, -0.5]
    assert {name: values.tolist() for name, values in scored.components.items()} == {
        "right": [1.0, 0.0, 1.0, 0.0],
        "style": [0.5, 0.25, 0.0, 1.0],
    }


def test_a_component_of_weight_zero_is_still_kept_for_the_eye() -> None:
    right, seen = Given(values=(1.0,) * 4, label="right"), Given(values=(3.0,) * 4, label="watched", weight=0.0)
    scored = score(resources(), [right, seen], ROLLOUTS)
    assert scored.components["watched"].tolist() == [3.0] * 4 and scored.rewards.tolist() == [1.0] * 4


def test_the_verifier_pays_for_the_right_answer_only() -> None:
    texts, answers = ["7 + 5 = 12 ; #### 12", "#### 13", "12", "#### 12 ; #### 13"], ["12"] * 4
    rollouts = [
        replace(rollout, text=text, problem=replace(rollout.problem, answer=answer))
        for rollout, text, answer in zip(ROLLOUTS, texts, answers, strict=True)
    ]
    assert ExactAnswer()(resources(), rollouts).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_learned_reward_sees_prompt_and_completion_and_is_squashed_to_a_chance() -> None:
    seen: list[tuple[Sequence[int], Sequence[int]]] = []

    def scorer(sequences: Sequences) -> Tensor:
        seen.extend(zip(sequences.prompts, sequences.completions, strict=True))
        return torch.tensor([0.0, torch.inf, -torch.inf, 1.0986123])  # log 3

    torch.testing.assert_close(LearnedReward()(resources(scorer), ROLLOUTS), torch.tensor([0.5, 1.0, 0.0, 0.75]))
    assert seen == [((3,), (1,))] * 4
    assert LearnedReward(squash="none")(resources(lambda rows: torch.tensor([5.0])), ROLLOUTS[:1]).tolist() == [5.0]
