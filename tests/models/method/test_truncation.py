"""Completions that were cut at their limit: their rewards, the penalty of their length, and the masked loss."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import torch
from torch import Tensor

from models.engines.engine import Generated, Sampling
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.advantage import CompletionAdvantage
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.method.slots import Slots
from models.method.truncation import TruncationSettings, overlong_penalty
from models.parts.objective.reinforce import Reinforce
from models.parts.rewards.judges.own_ranking import OwnLikelihood
from models.parts.rewards.models.learned import LearnedReward
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rewards.shaping.length_penalty import LengthPenalty
from models.parts.rewards.shaping.win_rate import WinRate
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.recipes.load import load_recipe
from models.training.loop import run_loop
from models.training.round import learn_from
from models.training.round_metrics import rollout_metrics
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, TOKENIZER, Diary, new_learner
from tests.support.tiny_models import SEQUENCES, scored, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

MASKED = TruncationSettings(rule="masked")
ASKED = Problem("p", "40 + 2 =", "4", tokens=tuple(CODEC.prompts(["4 + 2 ="])[0]))


def answering(text: str, finished: bool, tokens: int = 3, problem: Problem = ASKED, **more: Any) -> Rollout:
    return Rollout(problem, 0, (5,) * tokens, torch.full((tokens,), -1.0), text, finished, **more)


def test_an_answer_cut_from_a_longer_one_earns_nothing() -> None:
    """The answer is 4. A completion that was cut after `#### 4` might have continued to `#### 42`."""
    cut, whole = answering("#### 4", False), answering("#### 4", True)
    here = make_resources()
    assert ExactAnswer()(here, [cut, whole]).tolist() == [0.0, 1.0]
    assert WinRate()(here, [cut, whole]).tolist() == [0.0, 1.0]
    assert LengthPenalty()(here, [replace(cut, completion=(5,)), whole]).tolist() == [0.0, -0.5]


class Cutting:
    """An engine that always answers 4. Only its greedy completions are finished."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        ids: Any = TOKENIZER.convert_tokens_to_ids(["####", "4"])
        tokens = tuple(ids)
        completion = Generated(tokens, None, finished=sampling.temperature == 0.0)
        return [[completion] * sampling.samples for _ in prompts]


def test_evaluation_counts_a_cut_answer_as_wrong_and_without_a_vote() -> None:
    records = evaluate(cast(Any, Cutting()), CODEC, [ASKED], Sampling(samples=4), 0, None)
    assert records[0].greedy.correct and not any(sample.correct for sample in records[0].samples)
    assert prompt_values(records, "sampled_accuracy") == prompt_values(records, "maj_at_4") == 0.0
    half = replace(records[0], samples=(records[0].greedy, *records[0].samples[:3]))
    assert prompt_values([half], "maj_at_4") == 1.0  # cut completions do not vote, even if they contain 4


def test_a_learned_reward_finds_a_cut_completion_no_better_than_the_worst() -> None:
    scores = torch.tensor([3.0, -2.0, 1.0, 0.5])
    here = make_resources(scorer=lambda sequences: scores)
    rollouts = [answering("", finished) for finished in (False, True, True, False)]
    assert LearnedReward(squash="none")(here, rollouts).tolist() == [-2.0, -2.0, 1.0, -2.0]
    ended = [replace(rollout, finished=True) for rollout in rollouts]
    assert LearnedReward(squash="none")(here, ended).tolist() == scores.tolist()


def test_a_loop_that_never_ends_is_not_the_policys_own_favourite() -> None:
    here = make_resources()
    likely, unlikely = answering("7 7 7", False), answering("#### 7", True)
    rollouts = [
        replace(likely, behaviour_log_probs=torch.full((3,), -0.25)),
        replace(unlikely, behaviour_log_probs=torch.full((3,), -2.0)),
    ]
    assert OwnLikelihood()(here, rollouts).tolist() == [-2.0, -2.0]


def test_the_soft_penalty_is_formula_13_by_hand() -> None:
    """L_max is 20 and L_cache 4: the penalty is 0 up to 16 tokens, then 1/4 per token, and 1 from 20 tokens on."""
    rollouts = [answering("", length < 20, tokens=length) for length in (1, 15, 16, 17, 18, 19, 20, 23)]
    expected = [0.0, 0.0, 0.0, -0.25, -0.5, -0.75, -1.0, -1.0]
    assert overlong_penalty(rollouts, 20, 4).tolist() == expected


def test_what_somebody_else_began_counts_for_the_length() -> None:
    assert overlong_penalty([answering("", False, tokens=8, source=RolloutSource(begun=12))], 20, 4).tolist() == [-1.0]


def test_the_published_cache_is_a_fifth_of_the_limit() -> None:
    """The limit is 20,480 tokens. The first 16,384 have no penalty; it rises over the last 4,096."""
    free, half = scored([1.0, 1.0], [2]), [16384, 16384 + 2048]
    free = replace(
        free, rollouts=[replace(rollout, completion=(5,) * n) for rollout, n in zip(free.rollouts, half, strict=True)]
    )
    seen = TruncationSettings(rule="soft_penalty", weight=0.5).penalised(free, 20480)
    assert seen.rewards.tolist() == [1.0, 0.75] and seen.components["overlong"].tolist() == [0.0, -0.5]


@pytest.mark.parametrize("rule", ["wrong", "masked"])
def test_only_the_soft_penalty_changes_rewards(rule: Literal["wrong", "masked", "soft_penalty"]) -> None:
    before = scored([1.0, 0.0], [2])
    assert TruncationSettings(rule=rule).penalised(before, 1) is before


class AsGiven(CompletionAdvantage):
    """Advantage of the reward minus the mean over all completions, including cut ones."""

    def of_completions(self, resources: RunResources, chosen: Scored) -> Tensor:
        return (chosen.rewards - chosen.rewards.mean()).double()


def gradient(chosen: Scored, truncated: TruncationSettings) -> dict[str, Tensor]:
    """Return the change of the weights by one step of plain gradient descent."""
    policy = tiny_policy()
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION)
    step = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
    slots = Slots(Sample(max_tokens=8), [], [Everything()], AsGiven(), Reinforce(kl=0.0), cast(Any, None))
    resources = make_resources(learner=learner, truncated=truncated)
    learn_from(resources, slots, ScheduleSettings(rounds=1, optimiser=step), chosen, 0)
    return {name: value.detach() - before[name] for name, value in policy.named_parameters()}


def test_a_masked_completion_leaves_the_loss_and_stays_in_its_groups_mean() -> None:
    """The rewards are 1, 0 and 0, and the last completion is cut. The others have 2/3 and -1/3, not 1/2 and -1/2."""
    sequences = SEQUENCES.take([0, 1, 3])
    chosen = scored([1.0, 0.0, 0.0], [3], sequences=sequences)
    unheard = [replace(rollout, behaviour_log_probs=None) for rollout in chosen.rollouts]
    chosen = replace(chosen, rollouts=[*unheard[:2], replace(unheard[2], finished=False)])
    held, by_hand = gradient(chosen, MASKED), by_definition(sequences, [2 / 3, -1 / 3])
    wrong = gradient(chosen, TruncationSettings())
    for name, value in held.items():
        torch.testing.assert_close(value, by_hand[name], rtol=0, atol=1e-7)
    assert any((held[name] - wrong[name]).abs().max() > 1e-3 for name in held)


def by_definition(sequences: Sequences, advantages: Sequence[float]) -> dict[str, Tensor]:
    """Return the change by one step on the mean over tokens of -A log pi, from plain forward passes in float64."""
    policy = tiny_policy()
    loss, tokens = torch.zeros((), device=DEVICE), 0
    for prompt, completion, advantage in zip(sequences.prompts, sequences.completions, advantages, strict=False):
        logits = policy(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
        picked = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion, device=DEVICE)[:, None])
        loss, tokens = loss - advantage * picked.sum(), tokens + len(completion)
    (loss / tokens).backward()
    return {name: -value.grad for name, value in policy.named_parameters()}


def test_the_share_of_cut_completions_is_told_and_masked_ones_do_not_count_as_learning() -> None:
    chosen = scored([1.0, 0.0, 0.0, 0.0], [4])
    chosen = replace(chosen, rollouts=[replace(rollout, finished=i > 0) for i, rollout in enumerate(chosen.rollouts)])
    metrics = rollout_metrics(chosen, chosen)
    assert metrics["rollouts/cut_share"] == 0.25 and metrics["rollouts/trained_share"] == 1.0
    assert rollout_metrics(chosen, chosen, MASKED)["rollouts/trained_share"] == 0.75


class NeverEnding:
    """An engine whose completions are all cut."""

    dtype = torch.float32

    def members(self) -> Sequence["NeverEnding"]:
        return [self]

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        return [[Generated((5, 6), torch.full((2,), -1.0), finished=False)] * sampling.samples for _ in prompts]

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        pass

    def sleep(self) -> None:
        pass

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[0.0] * len(ids) for ids in completions]


def test_a_round_of_cut_completions_alone_moves_nothing_where_they_are_masked(tmp_path: Path) -> None:
    learner, diary = new_learner(SCHEDULE), Diary({}, {}, [])
    before = {name: value.clone() for name, value in learner.policy.state_dict().items()}
    schedule = replace(SCHEDULE, rounds=1, canary_tolerance=1e9)
    resources = make_resources(cast(Any, NeverEnding()), learner=learner, truncated=MASKED)
    slots = replace(SLOTS, select=[Everything()])
    run_loop(resources, slots, schedule, PROBLEMS, tmp_path, diary.watchers())
    assert all(torch.equal(value, before[name]) for name, value in learner.policy.state_dict().items())
    assert diary.metrics[1]["rollouts/cut_share"] == 1.0 and "policy/loss" not in diary.metrics[1]


def test_the_recipe_has_the_rule_and_refuses_what_cannot_be() -> None:
    assert load_recipe("arithmetic").truncated == TruncationSettings()
    four = load_recipe("decoupled_clip")
    assert (four.truncated.rule, four.truncated.weight) == ("soft_penalty", 0.5)
    for override, line in {
        "truncated={rule: masked, last_tokens: 3}": "last_tokens and weight are for rule soft_penalty",
        "truncated={rule: soft_penalty, last_tokens: 49}": "last_tokens is 49, more than rollouts.max_tokens, 48",
        "truncated={rule: ignored}": "'ignored' is not known",
    }.items():
        with pytest.raises(Exception, match=line):
            load_recipe("arithmetic", [override])
    with pytest.raises(Exception, match=r"truncated\.rule is masked, but objective dpo compares completions"):
        load_recipe("dpo", ["truncated.rule=masked"])
