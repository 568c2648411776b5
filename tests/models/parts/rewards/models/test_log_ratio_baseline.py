"""The baseline z of KTO and BCO: the mean log-ratio of a round, over matched or mismatched prompts."""

from typing import Any, Literal

import pytest
from torch import nn

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.models.log_ratio_baseline import LogRatioBaseline, after_next_prompt
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import COMPLETIONS, plain_log_probs, scored, tiny_policy
from tests.support.tiny_resources import make_resources

PROMPTS = [[3, 4, 5]] * 2 + [[6]] + [[7, 8]] * 2
ANSWERS = Sequences(PROMPTS, COMPLETIONS)
TURNED = Sequences([[6]] * 2 + [[7, 8]] + [[3, 4, 5]] * 2, COMPLETIONS)
"""Each completion after the prompt of the next group, by hand."""


def resources_of(policy: nn.Module, reference: nn.Module, **more: Any) -> RunResources:
    learner = new_learner(SCHEDULE)
    learner.policy, learner.reference = policy, reference
    return make_resources(learner=learner, **more)


def answers(sequences: Sequences = ANSWERS, sizes: tuple[int, ...] = (2, 1, 2)) -> list[Rollout]:
    return list(scored([0.0] * len(sequences.prompts), list(sizes), sequences=sequences).rollouts)


def mean_ratio(policy: nn.Module, reference: nn.Module, sequences: Sequences) -> float:
    """Return the mean of log pi/ref of whole completions, computed without packing."""
    sums = [[float(row.sum().detach()) for row in plain_log_probs(model, sequences)] for model in (policy, reference)]
    return float(sum(mine - other for mine, other in zip(*sums, strict=True)) / len(sequences.prompts))


def test_each_answer_is_read_after_the_prompt_of_the_next_group_and_never_after_its_own() -> None:
    turned = after_next_prompt(answers(), "z")
    assert [list(prompt) for prompt in turned.prompts] == TURNED.prompts
    assert [list(ids) for ids in turned.completions] == [list(ids) for ids in COMPLETIONS]


@pytest.mark.parametrize(("over", "sequences"), [("mismatched", TURNED), ("matched", ANSWERS)])
def test_it_is_the_mean_log_ratio_of_the_round_at_every_completion(
    over: Literal["mismatched", "matched"], sequences: Sequences
) -> None:
    policy, reference = tiny_policy(spread=2.0), tiny_policy(spread=0.3)
    wanted = mean_ratio(policy, reference, sequences)
    if over == "mismatched" and wanted < 0:
        policy, reference, wanted = reference, policy, -wanted
    values = LogRatioBaseline(over=over)(resources_of(policy, reference), answers())
    assert abs(wanted) > 0.05
    assert values.tolist() == pytest.approx([wanted] * 5, rel=1e-5)


def test_kl_is_at_least_zero_and_a_mean_of_rewards_may_be_below() -> None:
    policy, reference = tiny_policy(spread=2.0), tiny_policy(spread=0.3)
    if mean_ratio(policy, reference, TURNED) > 0:
        policy, reference = reference, policy
    resources = resources_of(policy, reference)
    assert LogRatioBaseline()(resources, answers()).tolist() == [0.0] * 5
    matched = mean_ratio(policy, reference, ANSWERS)
    assert LogRatioBaseline(over="matched")(resources, answers())[0].item() == pytest.approx(matched, rel=1e-5)


@pytest.mark.parametrize("over", ["mismatched", "matched"])
def test_it_does_not_depend_on_how_the_round_is_cut_into_rows(over: Literal["mismatched", "matched"]) -> None:
    policy, reference = tiny_policy(spread=2.0), tiny_policy(spread=0.3)
    whole, cut = (
        LogRatioBaseline(over=over)(resources_of(policy, reference, token_budget=budget), answers())
        for budget in (999, 12)
    )
    assert whole.tolist() == pytest.approx(cut.tolist(), rel=1e-5)


def test_a_policy_that_is_its_reference_measures_from_zero() -> None:
    policy = tiny_policy()
    assert LogRatioBaseline()(resources_of(policy, policy), answers()).tolist() == [0.0] * 5


def test_a_round_of_one_prompt_has_no_other_and_is_one_line() -> None:
    sequences = Sequences([[3, 4, 5]] * 2, COMPLETIONS[:2])
    with pytest.raises(UserError, match=r"reward log_ratio_baseline .* rollouts\.prompts must be 2 or more"):
        LogRatioBaseline()(resources_of(tiny_policy(), tiny_policy()), answers(sequences, (2,)))
