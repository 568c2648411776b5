"""Tokens that are not trained on: their values change neither loss nor gradient, and they are not projected."""

import copy
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.learner import fused_log_probs as fused
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings
from models.method.advantage import Advantage
from models.method.episode import Turn
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.objective import Objective
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.registry import parts
from models.method.rollout import Rollout, RolloutEpisode, written_places
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.objective.grpo import Grpo
from tests.support.device_here import placed
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, plain_log_probs, scored, tiny_policy
from tests.support.tiny_resources import make_resources

STEP = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
FLAGS = [
    (True, False),
    (False, True, True, False),
    (True,),
    (True, False, False, True, True, False),
    (False, False, True),
]
"""For each token of COMPLETIONS, whether it is trained on."""


def round_of() -> Scored:
    """Make two pairs of completions, without completion 2. The engine's log-probs are too high by 0.05."""
    chosen = scored([1.0, 0.0, 1.0, 0.0], [2, 2], sequences=SEQUENCES.take([0, 1, 3, 4]))
    rows = plain_log_probs(tiny_policy(), SEQUENCES.take([0, 1, 3, 4]))
    flags = [FLAGS[index] for index in (0, 1, 3, 4)]
    return replace(
        chosen,
        rollouts=[
            replace(rollout, behaviour_log_probs=row.detach().cpu() + 0.05, trained=flag)
            for rollout, row, flag in zip(chosen.rollouts, rows, flags, strict=True)
        ],
    )


def gradient(objective: Objective, chosen: Scored, advantage: list[Tensor]) -> tuple[dict[str, Tensor], float]:
    policy, reference = tiny_policy(), tiny_policy(seed=1, spread=2.0).requires_grad_(False)
    teacher, contrast = (tiny_policy(seed=seed, spread=3.0).requires_grad_(False) for seed in (5, 6))
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)
    if objective.needs_teacher is not None:
        learner = replace(learner, teachers={"teacher": teacher, "contrast": contrast})
    before = copy.deepcopy(dict(policy.named_parameters()))
    schedule = ScheduleSettings(optimiser=STEP, rounds=1, epochs=1 if objective.on_policy_only else 2)
    metrics = fit_round(learner, objective, chosen, advantage, schedule, longest=8)
    return {name: (before[name] - after).detach() for name, after in policy.named_parameters()}, metrics["loss"]


def every_objective() -> list[tuple[Objective, float]]:
    """Return every objective, with a KL term if it has one, and the value at tokens that are not trained on."""
    cases: list[tuple[Objective, float]] = [(Grpo(kl=0.1), 1e9), (Grpo(kl=0.1), float("inf"))]
    kinds: dict[str, Any] = {**parts("objective")}
    for _, kind in sorted(kinds.items()):
        settings = {"kl": 0.1} if "kl" in {field.name for field in fields(kind)} else {}
        cases.append((kind(**settings), float("nan")))
    return cases


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize(
    ("objective", "wrong"), [pytest.param(*case, id=f"{case[0].name}-{case[1]}") for case in every_objective()]
)
def test_no_value_at_a_token_that_is_not_trained_on_changes_loss_or_gradient(
    objective: Objective, wrong: float
) -> None:
    chosen = round_of()
    worth = chosen.rewards
    chosen = replace(chosen, components={"typicality": worth * 0.5 - 1.0, "log_ratio_baseline": worth * 0.3})
    advantage = [torch.full((len(r.completion),), 0.5 - r.group, dtype=torch.float64) for r in chosen.rollouts]
    masks = [torch.tensor(rollout.trained) for rollout in chosen.rollouts]

    def spoilt(row: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, row, torch.full_like(row, wrong))

    known, others = [], []
    for rollout, mask in zip(chosen.rollouts, masks, strict=True):
        said = rollout.behaviour_log_probs
        assert said is not None
        known.append(replace(rollout, reference_log_probs=said - 0.3))
        others.append(
            replace(rollout, behaviour_log_probs=spoilt(said, mask), reference_log_probs=spoilt(said - 0.3, mask))
        )
    chosen = replace(chosen, rollouts=known)
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
    kept = placed(torch.tensor([flag for row in FLAGS for flag in row])).nonzero().squeeze(1)
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
    from models.method import policy_outputs

    seen: list[int] = []
    real = fused.fused_log_probs

    def counted(states: Tensor, *given: Any, **settings: Any) -> Any:
        seen.append(len(states))
        return real(states, *given, **settings)

    monkeypatch.setattr(policy_outputs, "fused_log_probs", counted)
    chosen = round_of()
    advantage = [torch.ones(len(rollout.completion), dtype=torch.float64) for rollout in chosen.rollouts]
    gradient(Grpo(), chosen, advantage)
    assert sum(seen) == 2 * sum(rollout.trained_tokens for rollout in chosen.rollouts)


def test_what_an_environment_wrote_has_log_prob_zero_under_everybody() -> None:
    chosen = round_of()
    rollouts = [
        replace(
            chosen.rollouts[1],
            episode=replace(chosen.rollouts[1].episode, turns=(Turn(0, 2), Turn(3, 4))),
            trained=(True, True, False, True),
        )
    ]
    learner = Learner(
        tiny_policy(), torch.optim.SGD([nn.Parameter()]), tiny_policy(seed=1), None, None, MODEL_DISTRIBUTION
    )
    readings = Readings(learner, 64)
    [mine], reference = readings.policy(rollouts), readings.reference(rollouts)
    assert reference is not None and written_places(rollouts) is not None
    [entropy] = readings.entropy(rollouts)
    exact = plain_log_probs(tiny_policy(), SEQUENCES.take([1]))[0]
    for row in (mine, reference[0], entropy):
        assert row[2] == 0 and bool((row[[0, 1, 3]] != 0).all())
    assert torch.allclose(mine[[0, 1, 3]], exact[[0, 1, 3]], rtol=0, atol=1e-12)


def needing(kind: Any) -> dict[str, Any]:
    """Return settings with which an advantage reads all the data that it can."""
    known = {field.name for field in fields(kind)}
    return {
        **({"kl_in_reward": 0.1} if "kl_in_reward" in known else {}),
        **({"k": 2} if "k" in known else {}),
    }


def episodes_of(wrong: float) -> Scored:
    """Make two episodes for each of two prompts. `wrong` is the log-prob of tokens that the environment wrote."""
    rollouts = []
    for number, ids in enumerate([(5, 6, 7, 8, 9, 4), (6, 7, 8, 3, 4, 5), (3, 9, 9, 4, 6), (20, 19, 18, 17, 16)]):
        turns = (Turn(0, 2), Turn(3, len(ids) - 1))
        made = Rollout(
            Problem(f"p{number // 2}", "", tokens=(3, 4)),
            number // 2,
            ids,
            None,
            "",
            True,
            episode=RolloutEpisode(turns=turns),
        )
        flags = torch.tensor(made.written)
        known = torch.where(flags, torch.linspace(-3.0, -1.0, len(ids), dtype=torch.float64), wrong)
        rollouts.append(replace(made, trained=made.written, behaviour_log_probs=known, reference_log_probs=0.9 * known))
    tokens = [torch.tensor(rollout.written).double() * 0.1 for rollout in rollouts]
    return Scored(rollouts, torch.tensor([1.0, 0.0, 0.5, 0.25], dtype=torch.float64), {}, {}, tokens)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", sorted(parts("advantage")))
def test_no_value_at_a_token_of_the_environment_changes_any_advantage(name: str) -> None:
    kind: Any = parts("advantage")[name]
    advantage: Advantage = kind(**needing(kind))
    seen = []
    for wrong in (-1.0, float("nan")):
        chosen = episodes_of(wrong)
        if advantage.needs_extra == "greedy":
            greedy = [
                replace(chosen.rollouts[index], source=replace(chosen.rollouts[index].source, origin="greedy"))
                for index in (1, 3)
            ]
            chosen = replace(chosen, rollouts=[chosen.rollouts[0], greedy[0], chosen.rollouts[2], greedy[1]])
        policy, reference = tiny_policy(), tiny_policy(seed=1, spread=2.0).requires_grad_(False)
        teacher = tiny_policy(seed=5, spread=2.0).requires_grad_(False)
        learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)
        learner = replace(learner, teachers={"teacher": teacher})
        if advantage.companion:
            torch.manual_seed(3)
            companion = advantage.accompany(policy)
            assert companion is not None
            learner.companions[advantage.companion] = companion
        resources = make_resources(learner=learner)
        signal = advantage(resources, chosen)
        rows = [row[torch.tensor(r.written)] for row, r in zip(signal.tokens, chosen.rollouts, strict=True)]
        fitted = advantage.learn(resources, chosen, signal, 0) if advantage.companion else {}
        seen.append((torch.cat(rows), fitted))
    (clean, of_clean), (dirty, of_dirty) = seen
    assert bool(clean.isfinite().all()) and torch.equal(clean, dirty) and of_clean == of_dirty


def test_what_an_episode_is_worth_stands_at_the_last_token_that_the_policy_wrote() -> None:
    chosen = replace(episodes_of(-1.0), token_rewards=None)
    for row, worth, rollout in zip(chosen.rewards_by_token(), chosen.rewards, chosen.rollouts, strict=True):
        assert float(row[rollout.episode.turns[-1].stop - 1]) == float(worth) == float(row.sum())
