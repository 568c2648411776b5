"""Distillation by whole distributions: the published formulas, prompts of the judge, and the fit, in float64.

The expected values are computed one sequence at a time over whole softmaxes. They follow GKD's equation 1 (arXiv
2306.13649; TRL's GKDTrainer.generalized_jsd_loss, TRL's SDPO `compute_full_logit_self_distillation_loss`) and
AlignDistil's loss in the authors' aligndistil_trainer.py (reward_boost_type "aligndistil").
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION, Distribution
from models.learner.optimiser import OptimiserSettings
from models.method.fit import fit_round
from models.method.learner import Learner, Role, TargetModel
from models.method.policy_outputs import Divergence, PolicyOutputs, contrast_weight, read_policy
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.objective.align_distil import AlignDistil
from models.parts.objective.distillation import Distillation
from tests.support.device_here import DEVICE
from tests.support.tiny_batches import make_batch, numbers
from tests.support.tiny_models import COMPLETIONS, PROMPTS, tiny_policy

GAP = 1e-12
TOLD = [(14, 15, *PROMPTS[0]), (2, 2), tuple(PROMPTS[2]), (9,), (13, 3, 4, 4)]
"""Prompts that a judge reads instead of the policy's prompts."""
ROLLOUTS = [
    Rollout(Problem(f"p{group}", "", tokens=tuple(prompt)), group, tuple(ids), None, "", True)
    for group, (prompt, ids) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True))
]
CHOSEN = Scored([*ROLLOUTS, replace(ROLLOUTS[0], completion=(9, 9, 1))], torch.zeros(6), {}, {})
"""Scored completions. The first prompt has two, which share the computation of the prompt."""


def next_log_probs(
    model: nn.Module, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float = 1.0
) -> Tensor:
    """Return the log-probs of all tokens at each place of a completion, [tokens, vocabulary]."""
    logits = model(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0] / temperature
    return torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]


def jsd(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
    p, q = log_p.exp(), log_q.exp()
    if beta == 0.0:
        return (q * (log_q - log_p)).sum(-1)
    if beta == 1.0:
        return (p * (log_p - log_q)).sum(-1)
    log_m = torch.log(beta * q + (1 - beta) * p)
    return beta * (q * (log_q - log_m)).sum(-1) + (1 - beta) * (p * (log_p - log_m)).sum(-1)


def learner_of(
    teachers: Mapping[Role, nn.Module],
    reference: nn.Module | None = None,
    distribution: Distribution = MODEL_DISTRIBUTION,
) -> Learner:
    policy = tiny_policy(spread=2.0)
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.0)
    return Learner(policy, optimiser, reference, None, None, distribution, teachers=teachers)


def read(learner: Learner, asked: Divergence, rollouts: Sequence[Rollout] = CHOSEN.rollouts) -> PolicyOutputs:
    sequences = replace(CHOSEN, rollouts=rollouts).sequences
    return read_policy(learner, sequences, rollouts, Readings(learner, 24), asked)


def plain_divergence(
    learner: Learner, judge: nn.Module, beta: float, prompts: Sequence[tuple[int, ...]], temperature: float = 1.0
) -> Tensor:
    """Return the divergence by its definition, computed one sequence at a time, [tokens]."""
    parts = []
    for rollout, prompt in zip(CHOSEN.rollouts, prompts, strict=True):
        log_p = next_log_probs(learner.policy, rollout.problem.tokens, rollout.completion, temperature)
        parts.append(jsd(log_p, next_log_probs(judge, prompt, rollout.completion, temperature).detach(), beta))
    return torch.cat(parts)


def gap(policy: nn.Module, first: Tensor, other: Tensor) -> tuple[float, float]:
    """Return the largest difference of two values by token, and of their gradients under the same outer gradient."""
    outer = torch.randn(len(first), generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(DEVICE)
    weights = list(policy.parameters())
    left, right = (torch.autograd.grad((values * outer).sum(), weights) for values in (first, other))
    gaps = [(a - b).abs().max() for a, b in zip(left, right, strict=True)]
    return float((first - other).detach().abs().max()), float(torch.stack(gaps).max())


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_packed_with_shared_prompts_it_is_the_published_formula_sequence_by_sequence(
    beta: float, temperature: float
) -> None:
    teacher = tiny_policy(seed=1, spread=2.0, hidden=32)  # a model of another size
    learner = learner_of({"teacher": teacher}, distribution=Distribution(temperature=temperature))
    divergence = read(learner, Divergence(beta=beta)).divergence
    prompts = [rollout.problem.tokens for rollout in CHOSEN.rollouts]
    assert divergence is not None
    value, gradient = gap(learner.policy, divergence, plain_divergence(learner, teacher, beta, prompts, temperature))
    assert value <= GAP and gradient <= GAP


@pytest.mark.parametrize("judge", ["reference", "policy"])
def test_a_judge_that_is_told_more_reads_its_own_prompt_and_the_policy_the_plain_one(judge: TargetModel) -> None:
    reference = tiny_policy(seed=2, spread=2.0)
    learner = learner_of({}, reference=reference)
    metrics = [*TOLD, TOLD[1]]
    rollouts = [
        replace(rollout, source=replace(rollout.source, privileged=ids))
        for rollout, ids in zip(CHOSEN.rollouts, metrics, strict=True)
    ]
    divergence = read(learner, Divergence(beta=1.0, judge=judge), rollouts).divergence
    model = reference if judge == "reference" else learner.policy
    assert divergence is not None
    value, gradient = gap(learner.policy, divergence, plain_divergence(learner, model, 1.0, metrics))
    assert value <= GAP and gradient <= GAP


def test_align_distil_is_the_loss_of_the_authors_code() -> None:
    teacher, contrast = tiny_policy(seed=1, spread=2.0), tiny_policy(seed=2, spread=2.0)
    learner = learner_of({"teacher": teacher, "contrast": contrast})
    objective = AlignDistil(beta=0.1, extrapolation=1.5)
    assert objective.divergence is not None
    said = read(learner, objective.divergence)
    batch = make_batch(said.entropy, None, said.entropy)
    batch = replace(batch, divergence=said.divergence, contrast_gap=said.contrast_gap)
    actual, watch = objective(said.log_prob, batch)
    plain = []
    for rollout in CHOSEN.rollouts:
        student, dpo, reverse = (
            next_log_probs(model, rollout.problem.tokens, rollout.completion)
            for model in (learner.policy, teacher, contrast)
        )
        dpo, reverse = dpo.detach(), reverse.detach()
        alpha = (dpo.exp() - reverse.exp()).abs().sum(-1) * 1.5 + 1e-3
        final = torch.log_softmax(alpha[:, None] * (dpo - reverse) + dpo, -1)
        plain.append((student.exp() * (student - final)).sum(-1) * 0.1 / alpha)
    value, gradient = gap(learner.policy, actual, torch.cat(plain))
    assert value <= GAP and gradient <= GAP
    assert float(watch["extrapolation"].min()) >= 1e-3


def test_without_a_gap_to_its_contrast_the_teacher_stays_where_it_is() -> None:
    teacher = tiny_policy(seed=1, spread=2.0)
    learner = learner_of({"teacher": teacher, "contrast": copy.deepcopy(teacher)})
    asked = AlignDistil().divergence
    assert asked is not None
    moved = read(learner, asked)
    torch.testing.assert_close(moved.divergence, read(learner, Divergence(beta=1.0)).divergence, rtol=0, atol=GAP)
    assert moved.contrast_gap is not None
    assert float(moved.contrast_gap.abs().max()) <= GAP
    assert float(contrast_weight(moved.contrast_gap, 15.0).max()) == pytest.approx(1e-3)


def test_the_loss_of_a_token_is_its_divergence() -> None:
    batch = replace(make_batch(numbers(0, 0), None, numbers(0, 0)), divergence=numbers(0.5, 0.25))
    loss, watch = Distillation()(numbers(-1.0, -2.0), batch)
    assert loss.tolist() == [0.5, 0.25] and watch["divergence"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize("budget", [24, 10**6])
def test_the_fit_takes_the_mean_over_trained_tokens_however_rows_are_cut(budget: int) -> None:
    """Half of the fourth completion is not trained on, and does not count."""
    teacher = tiny_policy(seed=1, spread=2.0)
    held = (True,) * 3 + (False,) * 3
    rollouts = [*CHOSEN.rollouts[:3], replace(CHOSEN.rollouts[3], trained=held), *CHOSEN.rollouts[4:]]
    learner = learner_of({"teacher": teacher})
    flat = [torch.zeros(len(rollout.completion)) for rollout in rollouts]
    settings = ScheduleSettings(rounds=1, token_budget=budget)
    metrics = fit_round(learner, Distillation(beta=1.0), replace(CHOSEN, rollouts=rollouts), flat, settings, 6)
    untouched = learner_of({"teacher": teacher})
    prompts = [rollout.problem.tokens for rollout in rollouts]
    values = plain_divergence(untouched, teacher, 1.0, prompts).detach()
    kept = torch.tensor([flag for rollout in rollouts for flag in rollout.trained or (True,) * len(rollout.completion)])
    assert metrics["loss"] == pytest.approx(float(values[kept].mean()), abs=GAP)
    assert metrics["divergence"] == pytest.approx(float(values[kept].mean()), abs=GAP)


@pytest.mark.rotating(of=6)
def test_steps_of_distillation_make_the_policy_its_teacher() -> None:
    teacher = tiny_policy(seed=1, spread=2.0)
    learner = learner_of({"teacher": teacher})
    learner.optimiser = torch.optim.Adam(learner.policy.parameters(), lr=0.003)
    flat = [torch.zeros(len(rollout.completion)) for rollout in CHOSEN.rollouts]
    settings = ScheduleSettings(rounds=40, optimiser=OptimiserSettings(learning_rate=0.003, warmup_steps=0))
    metrics = [fit_round(learner, Distillation(beta=0.5), CHOSEN, flat, settings, 6)["divergence"] for _ in range(40)]
    assert metrics[-1] < 0.2 * metrics[0]


def test_a_judge_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="the teacher is to judge the policy's tokens, but there is none"):
        read(learner_of({}), Divergence(beta=1.0))
    asked = AlignDistil().divergence
    assert asked is not None
    with pytest.raises(UserError, match=r"set teacher\.contrast"):
        read(learner_of({"teacher": tiny_policy(seed=1)}), asked)
