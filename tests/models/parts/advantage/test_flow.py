"""The flows of a forward-looking flow network: the reading at a cut, places of rewards, and a policy that learns."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.scored import Scored
from models.method.slots import Slots
from models.parts.advantage.flow import Flow, paid_by_token
from models.parts.objective.forward_looking_balance import ForwardLookingBalance
from models.parts.reference.frozen import Frozen
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.reward_models.critic.model import Critic, read_values
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_loops import SCHEDULE, PaidSevens, new_learner, run, save_start
from tests.support.tiny_models import SEQUENCES, scored, tiny_policy
from tests.support.tiny_resources import make_resources

RISING = OptimiserSettings(learning_rate=3e-3, warmup_steps=1)


def worth(finished: bool) -> Scored:
    """Return five completions with rewards of single tokens in addition to one of the whole, ended or cut."""
    whole = scored(torch.tensor([1.0, 0.0, 2.0, 5.0, 3.0], dtype=torch.float64), [1] * 5, sequences=SEQUENCES)
    paid = [0.25 * torch.ones(len(ids), dtype=torch.float64) for ids in SEQUENCES.completions]
    rewards = whole.rewards + torch.stack([row.sum() for row in paid])
    rollouts = [replace(rollout, finished=finished) for rollout in whole.rollouts]
    return replace(whole, rollouts=rollouts, rewards=rewards, token_rewards=paid)


def learner_of(flow: Flow, reference: bool = True) -> tuple[Learner, Critic]:
    policy = tiny_policy()
    torch.manual_seed(3)
    companion = flow.accompany(policy)
    assert companion is not None and isinstance(companion.model, Critic)
    torch.nn.init.normal_(companion.model.head.weight, std=0.1)
    held = tiny_policy(seed=5).requires_grad_(False) if reference else None
    optimiser = build_optimiser(policy, RISING)
    learner = Learner(policy, optimiser, held, None, None, MODEL_DISTRIBUTION, companions={"flow": companion})
    return learner, companion.model


def test_the_reward_of_the_whole_is_paid_at_the_end_and_not_at_a_cut() -> None:
    ended, cut = paid_by_token(worth(True)), paid_by_token(worth(False))
    assert ended[3].tolist() == [0.25] * 5 + [5.25] and cut[3].tolist() == [0.25] * 6
    assert paid_by_token(replace(worth(False), token_rewards=None))[3].tolist() == [0.0] * 6


@pytest.mark.parametrize("finished", [True, False])
def test_the_log_probs_of_balance_are_those_of_the_formula(finished: bool) -> None:
    flow = Flow(beta=0.5, prior=0.7)
    learner, critic = learner_of(flow)
    given = worth(finished)
    signal = flow(make_resources(learner=learner), given)
    assert learner.reference is not None
    values, prior = read_values(critic, SEQUENCES), all_log_probs(learner.reference, SEQUENCES)
    longer = Sequences(SEQUENCES.prompts, [[*ids, 2] for ids in SEQUENCES.completions])
    ends = [row[-1] for row in read_values(critic, longer)]
    for index, row in enumerate(signal.tokens):
        after = [*values[index][1:].tolist(), 0.0 if finished else float(ends[index])]
        paid = paid_by_token(given)[index] / 0.5
        expected = paid + 0.7 * prior[index].cpu() + torch.tensor(after) - values[index]
        torch.testing.assert_close(row.double(), expected.double(), atol=1e-5, rtol=1e-5)


def test_while_the_flows_learn_alone_the_policy_is_its_own_target() -> None:
    flow = Flow(critic=CriticSettings(pretraining=1, optimiser=RISING))
    learner, _ = learner_of(flow)
    resources, given = make_resources(learner=learner), worth(True)
    signal = flow(resources, given)
    torch.testing.assert_close(
        torch.cat(list(signal.tokens)), torch.cat(all_log_probs(learner.policy, SEQUENCES)).cpu()
    )
    flow.learn(resources, given, signal, 0)
    assert float((torch.cat(list(flow(resources, given).tokens)) - torch.cat(list(signal.tokens))).abs().max()) > 0.1


def test_a_prior_without_a_reference_is_refused() -> None:
    flow = Flow()
    with pytest.raises(UserError, match=r"advantage\.prior is 1\.0, but the recipe has no reference: set it to 0"):
        flow(make_resources(learner=learner_of(flow, reference=False)[0]), worth(True))


@pytest.mark.rotating(of=6)
def test_rewarded_tokens_become_frequent(tmp_path: Path) -> None:
    flow = Flow(beta=0.1, critic=CriticSettings(epochs=2, minibatches=2, optimiser=RISING))
    source = Sample(prompts=6, group_size=8, max_tokens=5)
    slots = Slots(source, [PaidSevens()], [Everything()], flow, ForwardLookingBalance(), Frozen())
    schedule = replace(SCHEDULE, rounds=10, epochs=1, optimiser=RISING)
    torch.manual_seed(4)
    companion = flow.accompany(tiny_policy(torch.float32, spread=3.0))
    assert companion is not None
    learner = new_learner(schedule)
    learner.companions = {"flow": companion}
    start = save_start(tmp_path / "start")
    _, diary = run(start, tmp_path / "checkpoints", schedule=schedule, slots=slots, learner=learner)
    first, last = (diary.metrics[number]["reward/paid_sevens"] for number in (1, 10))
    assert last > first + 0.15
