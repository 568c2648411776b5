"""The implicit process reward, which learns together with the policy: its values, its loss and resumed runs."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.schedule import ScheduleSettings
from models.parts.advantage.process_leave_one_out import ProcessLeaveOneOut
from models.parts.rewards.models.implicit_process import ImplicitProcess
from models.parts.select.everything import Everything
from models.training.score import score
from tests.support import tiny_loops
from tests.support.device_here import placed
from tests.support.tiny_loops import SCHEDULE, SLOTS, Sevens, run, same_weights, save_start
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, plain_log_probs, scored, tiny_policy
from tests.support.tiny_resources import make_resources

ROLLOUTS = scored([0.0] * 5, [2, 3], sequences=SEQUENCES).rollouts
OUTCOME = {"exact_answer": torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])}


def resources_with(part: ImplicitProcess, judge: nn.Module | None = None, budget: int = 16384) -> RunResources:
    """Make resources whose judge is `judge`; by default a copy of the policy."""
    policy = tiny_policy()
    reference = copy.deepcopy(policy).requires_grad_(False)
    companion = part.accompany(judge or policy)
    learner = Learner(
        policy,
        torch.optim.SGD(policy.parameters()),
        reference,
        None,
        None,
        MODEL_DISTRIBUTION,
        companions={"process_reward": companion},
    )
    return make_resources(learner=learner, token_budget=budget)


def test_a_judge_that_has_learned_nothing_gives_no_reward() -> None:
    part = ImplicitProcess()
    assert all(float(row.abs().max()) == 0.0 for row in part.tokens(resources_with(part), ROLLOUTS))


def test_the_rewards_of_the_tokens_are_log_ratios_and_add_up_to_that_of_the_whole_answer() -> None:
    part, judge = ImplicitProcess(beta=0.3), tiny_policy(seed=4)
    values = part.tokens(resources_with(part, judge), ROLLOUTS)
    new, old = plain_log_probs(judge, SEQUENCES), plain_log_probs(tiny_policy(), SEQUENCES)
    for row, first, other in zip(values, new, old, strict=True):
        torch.testing.assert_close(row, 0.3 * (first - other).detach().cpu())
        assert float(row.sum()) == pytest.approx(0.3 * float((first.sum() - other.sum()).detach()))


def loss_by_definition(judge: nn.Module, beta: float) -> Tensor:
    values = [
        beta * (first - other.detach()).sum()
        for first, other in zip(
            plain_log_probs(judge, SEQUENCES), plain_log_probs(tiny_policy(), SEQUENCES), strict=True
        )
    ]
    return torch.nn.functional.binary_cross_entropy_with_logits(
        torch.stack(values), placed(OUTCOME["exact_answer"]).double()
    )


@pytest.mark.parametrize("budget", [14, 16384])
def test_what_it_minimises_is_the_cross_entropy_of_the_outcomes_however_the_rows_are_cut(budget: int) -> None:
    part, judge = ImplicitProcess(beta=0.3), tiny_policy(seed=4)
    metrics = part.learn(resources_with(part, judge, budget), ROLLOUTS, OUTCOME)
    loss = loss_by_definition(judge, 0.3)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in judge.parameters()])
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-8)
    assert metrics["gradient_norm"] == pytest.approx(float(norm), rel=1e-6)


def test_the_judge_learns_and_nothing_else_moves() -> None:
    part = ImplicitProcess(beta=0.3, learning_rate=1e-3, warmup_steps=0)
    resources = resources_with(part)
    losses = [part.learn(resources, ROLLOUTS, OUTCOME)["loss"] for _ in range(12)]
    last = part.learn(resources, ROLLOUTS, OUTCOME)
    assert losses[0] == pytest.approx(torch.tensor(2.0).log().item(), abs=1e-6)
    assert losses[-1] < 0.5 * losses[0] and last["accuracy"] == 1.0
    untouched = tiny_policy().state_dict()
    for model in (resources.learner.policy, resources.learner.reference):
        assert model is not None
        assert all(torch.equal(value, untouched[name]) for name, value in model.state_dict().items())
    sums = torch.stack([row.sum() for row in part.tokens(resources, ROLLOUTS)])
    assert ((sums > 0) == (OUTCOME["exact_answer"] > 0.5)).all()


def test_it_learns_before_it_speaks() -> None:
    part = ImplicitProcess(beta=0.3, learning_rate=1e-3, warmup_steps=0, by="sevens")
    rollouts = [replace(rollout, text="7" if index % 2 else "8") for index, rollout in enumerate(ROLLOUTS)]
    resources = resources_with(part)
    scored = score(resources, [Sevens(), part], rollouts)
    assert scored.components["implicit_process"].abs().min() > 0
    assert resources.learner.companions["process_reward"].updates == 1
    assert scored.token_rewards is not None
    assert [len(row) for row in scored.token_rewards] == [len(ids) for ids in COMPLETIONS]
    torch.testing.assert_close(
        torch.stack([row.sum() for row in scored.token_rewards]), scored.components["implicit_process"].float()
    )
    assert "process_reward/loss" in scored.watched


def test_an_outcome_that_stands_behind_it_is_named_as_missing() -> None:
    part = ImplicitProcess(by="judge")
    with pytest.raises(UserError, match="no reward before it is called judge; there are exact_answer"):
        part.learn(resources_with(part), ROLLOUTS, OUTCOME)


def test_without_a_reference_it_says_that_it_needs_one() -> None:
    part = ImplicitProcess()
    resources = resources_with(part)
    resources.learner.reference = None
    with pytest.raises(UserError, match="needs a reference"):
        part.tokens(resources, ROLLOUTS)


PART = ImplicitProcess(by="sevens", threshold=0.2, beta=0.3, learning_rate=1e-3, warmup_steps=2)


@pytest.mark.rotating(of=6)
def test_a_killed_run_goes_on_and_ends_with_the_same_policy_and_the_same_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tiny_loops.new_learner

    def accompanied(schedule: ScheduleSettings, lora: bool = False) -> Learner:
        learner = plain(schedule, lora)
        return replace(learner, companions={PART.companion: PART.accompany(learner.policy)})

    monkeypatch.setattr(tiny_loops, "new_learner", accompanied)
    start = save_start(tmp_path / "start")
    slots = replace(SLOTS, rewards=[Sevens(), PART], select=[Everything()], advantage=ProcessLeaveOneOut())
    whole, diary = run(start, tmp_path / "whole", slots=slots)
    run(start, tmp_path / "killed", slots=slots, killed_in=5)
    resumed, told_after = run(start, tmp_path / "killed", slots=slots)
    assert told_after.resumed == [4] and same_weights(whole, resumed)
    first, other = (learner.companions[PART.companion] for learner in (whole, resumed))
    assert first.updates == other.updates == SCHEDULE.rounds
    left, right = first.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert diary.metrics[6]["process_reward/loss"] == told_after.metrics[6]["process_reward/loss"]
    begun = tiny_policy(torch.float32, spread=3.0).state_dict()
    assert any(not torch.equal(value, begun[name]) for name, value in left.items())


def test_normalised_rewards_keep_one_size_however_far_the_judge_has_gone() -> None:
    """The largest absolute reward-to-go is 1 for every beta, so the rewards never outweigh the outcome, 0 or 1."""
    judge = tiny_policy(seed=4)
    plain = ImplicitProcess().tokens(resources_with(ImplicitProcess(), judge), ROLLOUTS)
    largest = max(abs(float(row[place:].sum())) for row in plain for place in range(len(row)))
    for beta in (0.05, 5.0):
        part = ImplicitProcess(beta=beta, normalise="round")
        for row, before in zip(part.tokens(resources_with(part, judge), ROLLOUTS), plain, strict=True):
            torch.testing.assert_close(row, before / largest)
    fresh = ImplicitProcess(normalise="round")
    assert all(float(row.abs().max()) == 0.0 for row in fresh.tokens(resources_with(fresh), ROLLOUTS))
