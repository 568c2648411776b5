"""ReMax: its baseline is the reward of the greedy completion, which the source samples once for each prompt."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.engine import Generated, Sampling
from models.method.problem import Origin, Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.token_batch import TokenBatch
from models.parts.advantage.greedy_baseline import GreedyBaseline
from models.parts.advantage.reward import FixedBaseline
from models.parts.objective.reinforce import Reinforce
from models.parts.rollouts.sample_and_greedy import SampleAndGreedy
from models.parts.select.drop_flat import DropFlat
from tests.support.tiny_batches import make_batch
from tests.support.tiny_loops import SCHEDULE, SLOTS, run, save_start
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def with_greedy(rewards: Tensor, sizes: Sequence[int], greedy: set[int]) -> Scored:
    """Return scored completions. Those at the places `greedy` are greedy and are not trained on."""
    held = scored(rewards, sizes)
    rollouts = [
        replace(rollout, source=replace(rollout.source, origin="greedy"), trained=(False,))
        if place in greedy
        else rollout
        for place, rollout in enumerate(held.rollouts)
    ]
    return replace(held, rollouts=rollouts)


def test_by_hand() -> None:
    held = with_greedy(numbers(1.0, 0.0, 0.25, 3.0, -1.0, 5.0), [3, 3], greedy={2, 3})
    torch.testing.assert_close(
        GreedyBaseline().of_completions(make_resources(), held), numbers(0.75, -0.25, 0.0, 0.0, -4.0, 2.0)
    )


def test_a_reward_added_to_all_completions_of_a_prompt_changes_nothing() -> None:
    rewards, shift = numbers(1.0, 0.0, 0.25, 3.0, -1.0), numbers(7.0, 7.0, 7.0, -4.0, -4.0)
    plain = GreedyBaseline().of_completions(make_resources(), with_greedy(rewards, [3, 2], {2, 4}))
    torch.testing.assert_close(
        GreedyBaseline().of_completions(make_resources(), with_greedy(rewards + shift, [3, 2], {2, 4})), plain
    )


def test_a_prompt_without_a_greedy_completion_is_an_error_that_names_the_source() -> None:
    with pytest.raises(UserError, match="sample_and_greedy"):
        GreedyBaseline().of_completions(make_resources(), with_greedy(numbers(1.0, 0.0, 1.0, 0.0), [2, 2], {1}))


REWARDS = numbers(1.0, 0.0, -2.0, 0.5)


def expected_gradients(rewards: Tensor = REWARDS) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
    """Return the exact gradient of a softmax policy over four actions, and for each method the mean and the mean square
    of the gradient of one sample."""
    logits = numbers(0.3, -0.2, 0.9, 0.0).requires_grad_()
    log_prob = logits.log_softmax(0)
    (exact,) = torch.autograd.grad((log_prob.exp() * rewards).sum(), logits, retain_graph=True)
    likeliest = int(logits.argmax())
    advantages = {}
    for name, advantage in (("remax", GreedyBaseline()), ("reinforce", FixedBaseline(baseline=0.0))):
        rows = []
        for action in range(4):
            held = with_greedy(rewards[[action, likeliest]], [2], {1})
            drawn = log_prob[[action]]
            better = advantage.of_completions(make_resources(), held)[held.trained]
            losses, _ = Reinforce()(
                drawn, make_batch(better, drawn.detach(), drawn.detach(), None, torch.zeros(1).long())
            )
            rows.append(-torch.autograd.grad(losses.sum(), logits, retain_graph=True)[0])
        chance = log_prob.exp().detach()[:, None]
        advantages[name] = ((chance * torch.stack(rows)).sum(0), (chance * torch.stack(rows) ** 2).sum())
    return exact, advantages


def test_the_expected_update_is_the_exact_policy_gradient_as_reinforces_is() -> None:
    exact, gradient = expected_gradients()
    torch.testing.assert_close(gradient["remax"][0], exact)
    torch.testing.assert_close(gradient["reinforce"][0], exact)


def test_it_is_less_noisy_than_no_baseline_where_the_greedy_completion_is_worth_about_what_samples_are() -> None:
    _, gradient = expected_gradients(numbers(2.0, 1.0, 1.5, 0.5))  # the third action is the most likely
    assert gradient["remax"][1] < 0.2 * gradient["reinforce"][1]


def test_it_is_noisier_than_no_baseline_where_the_greedy_completion_is_far_from_what_samples_are_worth() -> None:
    _, gradient = expected_gradients()  # the most likely action has reward -2, the others 0 to 1
    assert gradient["remax"][1] > gradient["reinforce"][1]


class Scripted:
    """An engine whose completions begin with token 9 at temperature zero, and else with 10 plus the prompt's number."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        self.calls = [*getattr(self, "calls", []), (sampling.temperature, sampling.samples)]
        self.seeds = [*getattr(self, "seeds", []), seed]
        if sampling.temperature == 0.0:
            return [[Generated((9, 1), torch.tensor([-0.1, -0.2]), True)] for _ in prompts]
        return [
            [Generated((10 + number, place), torch.tensor([-1.0, -1.0]), False) for place in range(sampling.samples)]
            for number in range(len(prompts))
        ]


def test_the_source_lays_one_greedy_completion_after_the_samples_of_each_prompt_and_gives_no_signal_by_it() -> None:
    engine: Any = Scripted()
    codec: Any = SimpleNamespace(text=lambda rows: [str(row) for row in rows])
    problems = [Problem("a", "", tokens=(3,)), Problem("b", "", tokens=(4,))]
    made = SampleAndGreedy(prompts=2, group_size=3)(make_resources(engine, codec=codec), problems, 0)
    assert [rollout.completion for rollout in made] == [
        (10, 0), (10, 1), (10, 2), (9, 1), (11, 0), (11, 1), (11, 2), (9, 1)
    ]  # fmt: skip
    assert [rollout.group for rollout in made] == [0] * 4 + [1] * 4
    assert [rollout.problem.id for rollout in made] == ["a"] * 4 + ["b"] * 4
    assert [rollout.source.origin for rollout in made] == (["policy"] * 3 + ["greedy"]) * 2
    assert [rollout.trained_tokens for rollout in made] == [2, 2, 2, 0] * 2
    assert engine.calls == [(1.0, 3), (0.0, 1)]


def test_no_two_draws_of_any_rounds_share_a_seed() -> None:
    """An engine seeds torch's generator, which dropout then uses. Equal seeds would repeat the dropout of a round."""
    engine: Any = Scripted()
    codec: Any = SimpleNamespace(text=lambda rows: [""] * len(rows))
    here = make_resources(engine, seed=3, codec=codec)
    for number in range(5):
        SampleAndGreedy(prompts=1, group_size=2)(here, [Problem("a", "", tokens=(3,))], number)
    assert len(engine.seeds) == len(set(engine.seeds)) == 10


@dataclass(frozen=True)
class Listening(Reinforce):
    """Objective that records the origins of the completions that it receives."""

    seen: list[Origin] = field(default_factory=list)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        self.seen.extend(batch.origins)
        assert batch.advantage.tolist() == [1.0] * len(log_prob)  # 1 of each sample minus 0 of the greedy one
        return super().__call__(log_prob, batch)


class OnlyGreedyIsWrong(Reward):
    """Reward of 0 for greedy completions and 1 for all others."""

    name = "sampled"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor([float(rollout.source.origin != "greedy") for rollout in rollouts])


def test_in_the_loop_no_greedy_completion_reaches_the_objective_and_every_advantage_is_against_it(
    tmp_path: Path,
) -> None:
    objective = Listening()
    slots = replace(
        SLOTS,
        rollouts=SampleAndGreedy(prompts=3, group_size=2, max_tokens=4),
        rewards=[OnlyGreedyIsWrong()],
        select=[DropFlat()],  # sees the greedy completion, so no group is flat
        advantage=GreedyBaseline(),
        objective=objective,
    )
    schedule = replace(SCHEDULE, rounds=1, epochs=1, minibatches=1)
    _, diary = run(save_start(tmp_path / "start"), tmp_path / "run", schedule=schedule, slots=slots)
    assert objective.seen == ["policy"] * 6
    assert diary.metrics[1]["reward/total"] == 1.0  # the metrics are those of the samples alone
