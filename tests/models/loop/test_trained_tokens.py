"""Tokens that are not trained on: no value there changes loss or gradient, and nothing is computed for them."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_models import COMPLETIONS, SEQUENCES, plain_log_probs, scored, tiny_policy
from torch import Tensor, nn

from models.learner import fused_log_probs as fused
from models.learner.fused_log_probs import AS_IT_IS
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings
from models.loop.fit import fit_round
from models.loop.learner import Learner
from models.loop.readings import Readings
from models.loop.rollout import Scored, written_places
from models.loop.schedule import ScheduleSettings
from models.loop.slots import Objective
from models.loop.turn import Turn
from models.objective.dpo import Dpo
from models.objective.grpo import Grpo
from models.objective.gspo import Gspo

STEP = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
FLAGS = [
    (True, False),
    (False, True, True, False),
    (True,),
    (True, False, False, True, True, False),
    (False, False, True),
]
"""Which tokens of COMPLETIONS are trained on."""


def round_of() -> Scored:
    """Pairs of completions, the last alone left out, with log-probs of an engine that is a little off."""
    chosen = scored([1.0, 0.0, 1.0, 0.0], [2, 2], sequences=SEQUENCES.take([0, 1, 3, 4]))
    rows = plain_log_probs(tiny_policy(), SEQUENCES.take([0, 1, 3, 4]))
    flags = [FLAGS[index] for index in (0, 1, 3, 4)]
    return replace(
        chosen,
        rollouts=[
            replace(rollout, behaviour_log_probs=row.detach() + 0.05, trained=flag)
            for rollout, row, flag in zip(chosen.rollouts, rows, flags, strict=True)
        ],
    )


def gradient(objective: Objective, chosen: Scored, advantage: list[Tensor]) -> tuple[dict[str, Tensor], float]:
    policy, reference = tiny_policy(), tiny_policy(seed=1, spread=2.0).requires_grad_(False)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, AS_IT_IS)
    before = copy.deepcopy(dict(policy.named_parameters()))
    schedule = ScheduleSettings(optimiser=STEP, rounds=1, epochs=2)
    metrics = fit_round(learner, objective, chosen, advantage, schedule, longest=8)
    return {name: (before[name] - after).detach() for name, after in policy.named_parameters()}, metrics["loss"]


@pytest.mark.parametrize("wrong", [1e9, float("nan"), float("inf")])
@pytest.mark.parametrize("objective", [Grpo(kl=0.1), Gspo(), Dpo()], ids=lambda objective: objective.level)
def test_no_value_at_a_token_that_is_not_trained_on_changes_loss_or_gradient(
    objective: Objective, wrong: float
) -> None:
    chosen = round_of()
    advantage = [torch.full((len(r.completion),), 0.5 - r.group, dtype=torch.float64) for r in chosen.rollouts]
    masks = [torch.tensor(rollout.trained) for rollout in chosen.rollouts]

    def spoilt(row: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, row, torch.full_like(row, wrong))

    others = []
    for rollout, mask in zip(chosen.rollouts, masks, strict=True):
        assert rollout.behaviour_log_probs is not None
        others.append(replace(rollout, behaviour_log_probs=spoilt(rollout.behaviour_log_probs, mask)))
    clean, loss = gradient(objective, chosen, advantage)
    spoilt_advantage = [spoilt(row, mask) for row, mask in zip(advantage, masks, strict=True)]
    dirty, other = gradient(objective, replace(chosen, rollouts=others), spoilt_advantage)
    assert loss == other and any(bool(value.any()) for value in clean.values())
    assert all(torch.equal(clean[name], dirty[name]) for name in clean)


def read(model: nn.Module, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    log_prob, entropy = completion_log_probs(model, SEQUENCES, kept=kept)
    flags = torch.tensor([flag for row in FLAGS for flag in row])
    return (log_prob, entropy) if kept is not None else (log_prob[flags], entropy[flags])


def test_what_is_kept_has_the_log_probs_and_gradients_of_a_whole_projection() -> None:
    kept = torch.tensor([flag for row in FLAGS for flag in row]).nonzero().squeeze(1)
    results = []
    for places in (None, kept):
        model: Any = tiny_policy()
        log_prob, entropy = read(model, places)
        (log_prob.sum() + 0.3 * entropy.square().sum()).backward()  # type: ignore[no-untyped-call]
        results.append((log_prob.detach(), entropy.detach(), [p.grad for p in model.parameters()]))
    (first, of_first, gradients), (other, of_other, others) = results
    assert torch.allclose(first, other, rtol=0, atol=1e-12) and torch.allclose(of_first, of_other, rtol=0, atol=1e-12)
    for mine, theirs in zip(gradients, others, strict=True):
        assert mine is not None and theirs is not None and torch.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_where_all_is_kept_nothing_changes_by_a_bit() -> None:
    model = tiny_policy(torch.float32)
    whole = completion_log_probs(model, SEQUENCES)
    every = completion_log_probs(model, SEQUENCES, kept=torch.arange(sum(map(len, COMPLETIONS))))
    assert all(torch.equal(mine, other) for mine, other in zip(whole, every, strict=True))


def test_the_projection_is_computed_for_trained_tokens_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from models.loop import distribution

    seen: list[int] = []
    real = fused.fused_log_probs

    def counted(states: Tensor, *given: Any, **settings: Any) -> Any:
        seen.append(len(states))
        return real(states, *given, **settings)

    monkeypatch.setattr(distribution, "fused_log_probs", counted)
    chosen = round_of()
    advantage = [torch.ones(len(rollout.completion), dtype=torch.float64) for rollout in chosen.rollouts]
    gradient(Grpo(), chosen, advantage)
    assert sum(seen) == 2 * sum(rollout.trained_tokens for rollout in chosen.rollouts)


def test_what_an_environment_wrote_has_log_prob_zero_under_everybody() -> None:
    chosen = round_of()
    rollouts = [replace(chosen.rollouts[1], turns=(Turn(0, 2), Turn(3, 4)), trained=(True, True, False, True))]
    learner = Learner(tiny_policy(), torch.optim.SGD([nn.Parameter()]), tiny_policy(seed=1), None, None, AS_IT_IS)
    readings = Readings(learner, 64)
    [mine], reference = readings.policy(rollouts), readings.reference(rollouts)
    assert reference is not None and written_places(rollouts) is not None
    [entropy] = readings.entropy(rollouts)
    exact = plain_log_probs(tiny_policy(), SEQUENCES.take([1]))[0]
    for row in (mine, reference[0], entropy):
        assert row[2] == 0 and bool((row[[0, 1, 3]] != 0).all())
    assert torch.allclose(mine[[0, 1, 3]], exact[[0, 1, 3]], rtol=0, atol=1e-12)
