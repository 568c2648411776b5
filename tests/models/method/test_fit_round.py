"""One round's fit: its gradient is that of the formula, whatever the token budget, the order and the minibatches.

The optimiser is plain gradient descent with step size one, so the weights change by the negative gradient.
"""

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.log_probs import use_packed_attention
from models.learner.packing import Sequences
from models.learner.reduce import Normalisation, token_weights
from models.method.fit import fit_round, minibatches
from models.method.learner import Learner
from models.method.objective import Objective
from models.method.readings import Readings
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.policies.build import LoraSettings, with_adapter
from tests.support.device_here import DEVICE, placed
from tests.support.fit_rounds import ADVANTAGE, LONGEST, STEP, TOKENS, learner_of, round_of, step
from tests.support.tiny_models import COMPLETIONS, PROMPTS, SEQUENCES, plain_log_probs, scored, tiny_policy


def heard(chosen: Scored, number: int) -> Tensor:
    """Return the engine's log-probs of a completion, [tokens], in float64."""
    said = chosen.rollouts[number].behaviour_log_probs
    assert said is not None
    return said.double()


@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
def test_the_entropy_bonus_is_a_mean_over_tokens_however_the_loss_is_averaged(normalisation: str) -> None:
    """Averaged like the loss, the bonus would favour the entropy of short completions (`completion`), or it would
    almost vanish under a large max_tokens (`constant`)."""
    plain, _ = step(normalisation=normalisation)
    rewarded, _ = step(normalisation=normalisation, objective=Grpo(kl=0.1, entropy_bonus=0.5), token_budget=24)
    policy = tiny_policy()
    entropies = []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        whole = policy(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0].log_softmax(-1)
        at = whole[len(prompt) - 1 : -1]
        entropies.append(-(at.exp() * at).sum(-1))
    (-0.5 * torch.cat(entropies).mean()).backward()
    for name, parameter in policy.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(rewarded[name] - plain[name], parameter.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
def test_the_gradient_is_that_of_the_formula_computed_without_any_packing(normalisation: str) -> None:
    gradients, metrics = step(normalisation=normalisation)
    plain, chosen = tiny_policy(), round_of()
    old = [row.detach() for row in plain_log_probs(plain, SEQUENCES)]
    reference = plain_log_probs(tiny_policy(seed=1, spread=2.0), SEQUENCES)
    total = sum(len(completion) for completion in COMPLETIONS)
    loss = torch.zeros((), dtype=torch.float64, device=DEVICE)
    for number, row in enumerate(plain_log_probs(plain, SEQUENCES)):
        behaviour = heard(chosen, number)
        weight = torch.exp(old[number] - behaviour).clamp(max=2.0)
        apart = reference[number].detach() - row
        tokens = -weight * torch.exp(row - old[number]) * ADVANTAGE[number] + 0.1 * (apart.exp() - 1 - apart)
        per_token = {"token": 1 / total, "completion": 1 / (5 * len(row)), "constant": 1 / (5 * LONGEST)}
        loss = loss + per_token[normalisation] * tokens.sum()
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-7)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-6, atol=1e-7)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
@pytest.mark.parametrize("budget", [8, 20, 33])
def test_loss_and_gradient_do_not_depend_on_the_token_budget(normalisation: str, budget: int) -> None:
    whole, metrics = step(normalisation=normalisation, token_budget=10**6)
    cut, metrics_of_cut = step(normalisation=normalisation, token_budget=budget)
    torch.testing.assert_close(cut, whole, rtol=1e-10, atol=1e-10)
    assert metrics_of_cut == pytest.approx(metrics, abs=1e-10)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
@pytest.mark.parametrize("budget", [13, 20, 10**6])
def test_prompts_that_are_shared_change_neither_loss_nor_gradient(normalisation: Normalisation, budget: int) -> None:
    groups = Sequences([PROMPTS[0]] * 3 + [PROMPTS[2]] * 2, COMPLETIONS)
    chosen = round_of(groups, [3, 2])
    gradients, metrics = step(chosen, normalisation=normalisation, token_budget=budget)
    plain = tiny_policy()
    old = [row.detach() for row in plain_log_probs(plain, groups)]
    reference = plain_log_probs(tiny_policy(seed=1, spread=2.0), groups)
    weights = token_weights([len(completion) for completion in COMPLETIONS], normalisation, LONGEST)
    loss = torch.zeros((), dtype=torch.float64, device=DEVICE)
    for number, row in enumerate(plain_log_probs(plain, groups)):
        behaviour, weight = placed(heard(chosen, number)), placed(weights[number])
        apart = reference[number].detach() - row
        pull = -torch.exp(old[number] - behaviour).clamp(max=2.0) * torch.exp(row - old[number]) * ADVANTAGE[number]
        loss = loss + (weight * (pull + 0.1 * (apart.exp() - 1 - apart))).sum()
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-7)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-6, atol=1e-7)


def test_in_float32_the_token_budget_shows_only_as_rounding() -> None:
    whole, metrics = step(dtype=torch.float32, token_budget=10**6)
    cut, metrics_of_cut = step(dtype=torch.float32, token_budget=14)
    for name, value in whole.items():
        assert (cut[name] - value).abs().max() <= 1e-5 * max(1.0, float(value.abs().max()))
    assert metrics_of_cut == pytest.approx(metrics, abs=1e-5)


@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
def test_loss_and_gradient_do_not_depend_on_the_order_of_rows(normalisation: str) -> None:
    chosen, order = round_of(), torch.tensor([4, 2, 0, 3, 1])
    straight, metrics = step(chosen, normalisation=normalisation)
    turned, metrics_of_turned = step(chosen.take(order), ADVANTAGE[order], normalisation=normalisation)
    torch.testing.assert_close(turned, straight, rtol=1e-9, atol=1e-9)
    assert metrics_of_turned == pytest.approx(metrics, abs=1e-9)


@dataclass
class Seen(Objective):
    """Objective of the log-probs weighted by the advantages. It records every batch that it receives."""

    level = "token"
    batches: list[tuple[torch.Tensor, TokenBatch]] = field(default_factory=list)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        self.batches.append((log_prob.detach().clone(), batch))
        return -batch.advantage * log_prob, {}


def test_every_update_of_a_round_sees_the_log_probs_from_before_the_round() -> None:
    seen = Seen()
    small = replace(STEP, learning_rate=0.01)
    learner = learner_of()
    schedule = ScheduleSettings(optimiser=small, rounds=1, epochs=3)
    fit_round(learner, seen, round_of(), TOKENS, schedule, LONGEST)
    (first, before), (second, after), (third, last) = seen.batches
    torch.testing.assert_close(before.old, first, rtol=0, atol=1e-12)
    for batch in (after, last):
        torch.testing.assert_close(batch.old, before.old, rtol=0, atol=0)
    assert (second - first).abs().max() > 1e-6 and (third - second).abs().max() > 1e-6
    assert learner.updates == 3


def test_with_minibatches_the_second_still_sees_the_log_probs_from_before_the_first() -> None:
    seen, learner = Seen(), learner_of()
    exact = torch.cat(plain_log_probs(tiny_policy(), SEQUENCES)).detach()
    schedule = ScheduleSettings(
        optimiser=replace(STEP, learning_rate=0.01), rounds=1, minibatches=2, token_budget=10**6
    )
    fit_round(learner, seen, round_of(), TOKENS, schedule, LONGEST)
    (_, first), (now, second) = seen.batches
    assert sorted(first.old.tolist()) == pytest.approx(sorted(exact[:6].tolist()), abs=1e-9)
    assert sorted(second.old.tolist()) == pytest.approx(sorted(exact[6:].tolist()), abs=1e-9)
    assert (now - second.old).abs().max() > 1e-6


def test_reference_and_temperature_reach_the_objective() -> None:
    seen, learner = Seen(), learner_of(temperature=0.7)
    fit_round(learner, seen, round_of(), TOKENS, ScheduleSettings(optimiser=STEP, token_budget=8), LONGEST)
    log_prob, batch = seen.batches[1]  # each completion has its own row; the longest come first
    sequences = SEQUENCES.take([3])  # completion 3; completion 2 has the same length and comes first
    torch.testing.assert_close(log_prob, plain_log_probs(tiny_policy(), sequences, 0.7)[0].detach())
    reference = plain_log_probs(tiny_policy(seed=1, spread=2.0), sequences, 0.7)[0].detach()
    torch.testing.assert_close(batch.reference, reference)
    assert batch.advantage.tolist() == [float(ADVANTAGE[3])] * len(log_prob)


def test_without_a_reference_objectives_see_none() -> None:
    seen, learner = Seen(), learner_of()
    learner.reference = None
    fit_round(learner, seen, round_of(), TOKENS, ScheduleSettings(optimiser=STEP), LONGEST)
    assert seen.batches[0][1].reference is None


@dataclass
class Whole(Objective):
    """Objective of the log-likelihood of whole completions."""

    level = "completion"

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        assert log_prob.shape == (batch.completions,)
        return -log_prob, {}


@pytest.mark.parametrize("budget", [8, 10**6])
def test_a_loss_of_whole_completions_weighs_each_by_the_weights_of_its_tokens(budget: int) -> None:
    gradients, metrics = step(objective=Whole(), normalisation="completion", token_budget=budget)
    plain = tiny_policy()
    loss = -torch.cat(plain_log_probs(plain, SEQUENCES)).sum() / 5
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-10)
    torch.testing.assert_close(gradients, {name: value.grad for name, value in plain.named_parameters()})


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_minibatches_hold_every_completion_once_and_keep_groups_whole(count: int) -> None:
    chosen = scored([0.0] * 14, [2, 3, 1, 5, 3])
    parts = list(minibatches(chosen, count))
    assert sorted(row for part in parts for row in part) == list(range(14)) and len(parts) == min(count, 5)
    groups = chosen.groups.tolist()
    assert max(Counter(group for part in parts for group in {groups[row] for row in part}).values()) == 1
    assert all(parts)


def test_a_round_of_one_group_is_not_cut_but_learned_whole() -> None:
    learner = learner_of()
    schedule = ScheduleSettings(optimiser=STEP, minibatches=4)
    fit_round(learner, Grpo(), round_of(sizes=[5]), TOKENS, schedule, LONGEST)
    assert learner.updates == 1


def test_a_loss_that_is_not_finite_stops_before_any_weight_moves() -> None:
    learner = learner_of()
    poisoned = [*TOKENS[:3], torch.full_like(TOKENS[3], torch.nan), TOKENS[4]]
    with pytest.raises(UserError, match="update 0: the loss is not finite"):
        fit_round(learner, Grpo(), round_of(), poisoned, ScheduleSettings(optimiser=STEP), LONGEST)
    torch.testing.assert_close(dict(learner.policy.named_parameters()), dict(tiny_policy().named_parameters()))


def test_what_is_watched_is_a_mean_over_all_tokens() -> None:
    _, metrics = step(token_budget=14)
    gaps = [0.05] * sum(map(len, COMPLETIONS))
    assert metrics["engine_gap"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-6)
    assert metrics["clipped_share"] == 0.0 and metrics["entropy"] > 0 and metrics["gradient_norm"] > 0


def test_the_reference_never_moves_while_the_policy_does() -> None:
    learner = learner_of()
    assert learner.reference is not None
    before = copy.deepcopy(learner.reference.state_dict())
    fit_round(learner, Grpo(), round_of(), TOKENS, ScheduleSettings(optimiser=STEP, epochs=2), LONGEST)
    assert all(torch.equal(value, before[name]) for name, value in learner.reference.state_dict().items())
    moved = [
        not torch.equal(value, other)
        for value, other in zip(learner.policy.parameters(), tiny_policy().parameters(), strict=True)
    ]
    assert all(moved)


class Margin(Objective):
    """Objective of the better completion's log-likelihood minus that of the worse one."""

    level = "pair"

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.pairs is not None
        assert log_prob.shape == (len(batch.pairs), 2)
        return -(log_prob[:, 0] - log_prob[:, 1]), {"margin": log_prob.detach()[:, 0]}


PAIRS = Sequences([PROMPTS[0]] * 2 + [PROMPTS[2]] * 2, COMPLETIONS[:4])


@pytest.mark.parametrize("budget", [14, 10**6])
def test_a_loss_of_pairs_is_the_mean_over_pairs_of_better_against_worse(budget: int) -> None:
    chosen = replace(round_of(PAIRS, [2, 2]), rewards=torch.tensor([0.0, 1.0, 3.0, 2.0]))
    gradients, metrics = step(chosen, ADVANTAGE[:4], objective=Margin(), token_budget=budget)
    plain = tiny_policy()
    rows = [row.sum() for row in plain_log_probs(plain, PAIRS)]
    loss = -((rows[1] - rows[0]) + (rows[2] - rows[3])) / 2
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-10)
    torch.testing.assert_close(gradients, {name: value.grad for name, value in plain.named_parameters()})


@pytest.mark.parametrize(("sizes", "rewards"), [([2, 2], [1.0, 1.0, 2.0, 3.0]), ([3, 1], [1.0, 2.0, 3.0, 4.0])])
def test_pairs_that_do_not_prefer_are_refused_by_the_name_of_their_problem(
    sizes: list[int], rewards: list[float]
) -> None:
    chosen = replace(round_of(PAIRS, sizes), rewards=torch.tensor(rewards))
    with pytest.raises(UserError, match="problem p0: an objective over pairs needs two completions"):
        step(chosen, ADVANTAGE[:4], objective=Margin())


def test_the_reference_is_read_once_a_round_however_many_steps_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of()
    read: list[None] = []
    assert learner.reference is not None
    inner: Any = learner.reference.model
    run = type(inner).forward

    def counted(self: nn.Module, *arguments: Any, **named: Any) -> Any:
        if self is inner:
            read.append(None)
        return run(self, *arguments, **named)

    use_packed_attention(learner.reference)
    monkeypatch.setattr(type(inner), "forward", counted)
    schedule = ScheduleSettings(optimiser=replace(STEP, learning_rate=0.0), epochs=3)
    fit_round(learner, Grpo(kl=0.1), round_of(), TOKENS, schedule, LONGEST)
    assert len(read) == 1


def test_the_old_log_probs_are_those_of_the_whole_policy_though_its_adapter_learns_with_dropout() -> None:
    base = tiny_policy()
    policy: Any = with_adapter(tiny_policy(), LoraSettings(rank=4, dropout=0.5), seed=0).double().train()
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    learner = Learner(
        policy, torch.optim.SGD(policy.parameters()), None, policy.disable_adapter, None, MODEL_DISTRIBUTION
    )
    old = torch.cat(Readings(learner, 100).under(learner.policy, SEQUENCES))
    read = Readings(learner, 100).reference(round_of().rollouts)
    assert read is not None
    reference = torch.cat(read)
    policy.eval()
    torch.testing.assert_close(old, torch.cat(plain_log_probs(policy, SEQUENCES)).detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(reference, torch.cat(plain_log_probs(base, SEQUENCES)).detach(), rtol=1e-10, atol=1e-10)


def test_reference_log_probs_that_rollouts_carry_are_used_as_they_are() -> None:
    seen, learner = Seen(), learner_of()
    learner.reference = None
    values = [-0.5 - torch.arange(len(r.completion)) for r in round_of().rollouts]
    carried = [replace(r, reference_log_probs=row) for r, row in zip(round_of().rollouts, values, strict=True)]
    fit_round(learner, seen, replace(round_of(), rollouts=carried), TOKENS, ScheduleSettings(optimiser=STEP), LONGEST)
    ((_, batch),) = seen.batches
    assert batch.reference is not None
    assert sorted(batch.reference.tolist()) == sorted(torch.cat(values).tolist())
