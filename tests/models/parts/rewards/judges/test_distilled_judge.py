"""The distilled judge: the table equals the judge, losses by hand, a companion that learns, resume and refusals."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.method import tally as tallies
from models.method.learner import Learner
from models.method.resources import RunResources
from models.parts.rewards.judges.distilled_judge import DistilledJudge, label_loss, rank_loss
from models.parts.rewards.judges.judge_score import JudgeScore
from models.parts.rewards.models.guard import losses_of
from models.parts.select.everything import Everything
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.reward_models.critic.fit import critic_of
from tests.support.tiny_judges import Scripted, resources_of, rollouts
from tests.support.tiny_loops import SCHEDULE, SLOTS, Sevens, new_learner, run, same_weights, save_start
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

SETTINGS = {"template": "{prompt} | {completion}"}
QUICK = OptimiserSettings(learning_rate=3e-3, warmup_steps=0)


def first_digit(question: str, vote: int) -> str:
    """Give the first digit of the completion as the score."""
    return f"#### {question.partition('| ')[2][:1]}"


def part(**settings: object) -> DistilledJudge:
    return DistilledJudge(**SETTINGS, **settings)  # type: ignore[arg-type]


def opened(reward: DistilledJudge) -> RunResources:
    torch.manual_seed(0)
    resources = resources_of(first_digit)
    companion = reward.accompany(tiny_policy())
    companions = {} if companion is None else {reward.companion: companion}
    return replace(resources, learner=replace(resources.learner, companions=companions, tally=tallies.Tally()))


def asked(resources: RunResources) -> list[str]:
    assert isinstance(resources.judge, Scripted)
    return resources.judge.asked


TEXTS = [f"{a} + {b}" for a in "0369" for b in "12"]


def test_a_table_in_which_everything_is_labelled_gives_the_values_of_the_judge() -> None:
    reward = part(kind="table", labelled=1.0)
    round_of = [*rollouts(*TEXTS, "3 + 1"), *rollouts("9", group=1, prompt="other")]
    made = reward.reasoned(opened(reward), round_of)
    judged = JudgeScore(**SETTINGS).reasoned(resources_of(first_digit), round_of)  # type: ignore[arg-type]
    assert torch.equal(made.values, judged.values) and made.reasons == judged.reasons
    assert made.watched == {"asked": 9.0, "unread": 0.0, "labelled": 1.0}


def test_a_part_of_the_round_is_asked_about_and_no_text_twice() -> None:
    reward = part(kind="table", labelled=0.5)
    resources = opened(reward)
    values = reward(resources, rollouts(*TEXTS, *TEXTS))
    known = {question.partition("| ")[2] for question in asked(resources)}
    assert len(known) == len(asked(resources)) == 4
    assert values.tolist() == pytest.approx([int(text[0]) / 9 if text in known else 0.0 for text in TEXTS * 2])
    complete = reward.reasoned(resources, rollouts(*TEXTS))
    assert len(set(asked(resources))) == len(asked(resources)) == 8 and complete.watched["labelled"] == 1.0
    assert reward.reasoned(resources, rollouts(*TEXTS)).watched["asked"] == 0.0


def test_a_text_of_another_prompt_has_a_label_of_its_own() -> None:
    reward = part(kind="table", labelled=1.0)
    resources = opened(reward)
    reward(resources, rollouts("3"))
    assert reward.reasoned(resources, rollouts("3", prompt="other")).watched["asked"] == 1.0


def test_a_verdict_that_cannot_be_read_is_no_label_and_is_asked_for_again() -> None:
    reward = part(kind="table", labelled=1.0)
    resources = opened(reward)
    made = reward.reasoned(resources, rollouts("x", "3"))
    assert made.values.tolist() == pytest.approx([0.0, 1 / 3]) and made.watched["unread"] == 0.5
    assert reward.reasoned(resources, rollouts("x", "3")).watched["asked"] == 1.0


def test_the_losses_by_hand() -> None:
    scores, values = torch.tensor([2.0, -1.0, 0.5]).double(), torch.tensor([1.0, 0.0, 1.0]).double()
    assert torch.allclose(label_loss(scores, values), losses_of(scores, values > 0).mean(), atol=1e-12)
    expected = -(torch.sigmoid(scores[[0, 2]] - scores[1]).log()).mean()
    assert torch.allclose(rank_loss(scores, values), expected, atol=1e-12)
    assert float(rank_loss(scores, torch.ones(3))) == 0.0
    assert torch.autograd.gradcheck(lambda given: rank_loss(given, values), scores.requires_grad_())


def test_the_label_loss_is_least_where_the_value_is_the_label() -> None:
    values = torch.tensor([0.2, 0.7]).double()
    scores = torch.logit(values).requires_grad_()
    (slopes,) = torch.autograd.grad(label_loss(scores, values), scores)
    assert torch.allclose(slopes, torch.zeros(2, dtype=torch.float64), atol=1e-12)


def test_a_value_does_not_depend_on_the_other_texts_or_the_row() -> None:
    reward = part()
    resources = opened(reward)
    together = reward(resources, rollouts(*TEXTS))
    narrow = replace(resources, readings=make_resources(token_budget=16).readings)
    alone = torch.cat([reward(narrow, rollouts(text)) for text in TEXTS])
    assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("kind", ["classifier", "ranker"])
def test_the_step_does_not_depend_on_how_the_labels_are_cut_into_rows(kind: str) -> None:
    reward, heads = part(kind=kind, labelled=1.0, passes=1), []
    for budget in (16384, 16):
        resources = opened(reward)
        reward(resources, rollouts(*TEXTS))
        resources = replace(resources, readings=make_resources(token_budget=budget).readings)
        reward.learn(resources, [], {})
        heads.append(critic_of(resources.learner.companions["distilled_judge"]).head.weight.detach().clone())
    assert torch.allclose(heads[0], heads[1], atol=1e-6)


@pytest.mark.parametrize("kind", ["classifier", "ranker"])
def test_the_companion_orders_texts_that_the_judge_never_saw(kind: str) -> None:
    def likes_sevens(question: str, vote: int) -> str:
        return "#### 9" if "7" in question else "#### 0"

    reward = part(kind=kind, labelled=1.0, passes=60, optimiser=QUICK)
    resources = replace(opened(reward), judge=Scripted(likes_sevens))
    assert reward.learn(resources, [], {}) == {}  # there is no label yet
    reward(resources, rollouts(*(f"{a} + {b}" for a in "1357" for b in "1357" if a != b)))
    loss = reward.learn(resources, [], {})
    low, high = reward(replace(resources, judge=Scripted(lambda question, vote: "?")), rollouts("3 + 3", "7 + 7"))
    assert loss["labels"] == 12.0 and float(high - low) > 0.3
    assert len(asked(resources)) == 12


def test_a_run_that_resumes_learns_from_the_same_labels_and_asks_the_same_questions() -> None:
    reward, ends = part(labelled=0.25), []
    for resumed in (False, True):
        resources = opened(reward)
        reward(resources, rollouts(*TEXTS))
        if resumed:
            resources.learner.tally = tallies.read(tallies.written(resources.learner.tally))
        reward.learn(resources, [], {})
        values = reward(resources, rollouts(*TEXTS))
        ends.append((values, asked(resources)))
    assert torch.equal(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize("kind", ["table", "classifier"])
def test_a_killed_run_ends_with_the_same_policy_labels_and_companion(tmp_path: Path, kind: str) -> None:
    reward = part(kind=kind, labelled=0.5, passes=1)
    slots = replace(SLOTS, rewards=[Sevens(), reward], select=[Everything()])
    start = save_start(tmp_path / "start")

    def ended(folder: str, killed_in: int | None = None) -> Learner:
        learner = new_learner(SCHEDULE)
        torch.manual_seed(0)
        if (companion := reward.accompany(learner.policy)) is not None:
            learner.companions[reward.companion] = companion
        judge = Scripted(first_digit)
        run(start, tmp_path / folder, slots=slots, learner=learner, judge=judge, killed_in=killed_in)
        return learner

    whole = ended("whole")
    ended("killed", killed_in=5)
    resumed = ended("killed")
    assert same_weights(whole, resumed) and whole.tally.labels == resumed.tally.labels != {}
    for name, companion in whole.companions.items():
        weights = resumed.companions[name].model.state_dict()
        assert all(torch.equal(value, weights[key]) for key, value in companion.model.state_dict().items())


def test_only_a_table_has_no_companion() -> None:
    assert part(kind="table").companion == "" and part(kind="table").accompany(tiny_policy()) is None
    assert part(kind="ranker").companion == "distilled_judge" and part().reads_learner


def test_settings_that_cannot_work_are_refused() -> None:
    for override, line in (("labelled=0", "labelled"), ("kind=forest", "kind")):
        with pytest.raises(UserError, match=rf"rewards\.1.*{line}"):
            load_recipe(find_recipe("oni"), [f"rewards.1.{override}"])
