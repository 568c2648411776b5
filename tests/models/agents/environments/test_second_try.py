"""Two attempts at a problem: their rewards in both stages, and the weight of the KL term in each turn."""

from dataclasses import replace

import pytest
import torch

from models.agents.environments.second_try import SecondTry
from models.datasets.schema import TURNS
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode, turn_numbers
from models.parts.objective.reinforce import Reinforce
from models.parts.rewards.episodes.attempts import Attempts
from models.parts.shared.kl_term import k3
from models.task_sets.drawing import make_rows
from models.task_sets.second_try import SAYS, SecondTrySettings
from tests.support.tiny_batches import gradient_of, make_batch, numbers
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_resources import make_resources

SUM = Problem("p", "47 + 85 = ?", "132")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_every_attempt_is_judged_and_the_last_one_decides(first: bool, second: bool) -> None:
    opened = SecondTry().open(SUM)
    opened.reset(0)
    said = {True: "#### 132", False: "#### 122"}
    assert opened.step(said[first]) == (SAYS, float(first), False, False, {})
    assert opened.step(said[second]) == ("", float(second), True, False, {"solved": second})


def attempts(*rewards: float) -> Rollout:
    turns = tuple(Turn(3 * number, 3 * number + 2, reward) for number, reward in enumerate(rewards))
    return Rollout(SUM, 0, (5,) * (3 * len(rewards) - 1), None, "", True, episode=RolloutEpisode(turns=turns))


@pytest.mark.parametrize(
    ("first", "second", "later"), [(0, 0, 0.0), (1, 0, 1 + 0 - 2.0), (0, 1, 0 + 1 + 2.0), (1, 1, 2.0)]
)
def test_the_first_stage_counts_the_last_attempt_and_the_second_what_it_gains(
    first: float, second: float, later: float
) -> None:
    learner = new_learner(SCHEDULE)
    resources, part = make_resources(learner=learner), Attempts(alpha=2.0, first_stage=3)
    rollout = attempts(first, second)
    learner.updates = 2
    assert part.tokens(resources, [rollout])[0].tolist() == [0, 0, 0, 0, second]
    learner.updates = 3
    row = part.tokens(resources, [rollout])[0]
    assert float(row.sum()) == later and float(row[1]) == first


def test_an_attempt_that_never_came_to_a_second_is_worth_nothing_in_the_first_stage() -> None:
    assert Attempts(first_stage=1).tokens(make_resources(), [attempts(1.0)])[0].tolist() == [0, 0]


def test_every_token_knows_its_turn() -> None:
    assert turn_numbers(attempts(0, 0, 0)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert turn_numbers(replace(attempts(0), episode=replace(attempts(0).episode, turns=()))).tolist() == [0, 0]


def test_each_turn_has_its_own_weight_of_the_kl_and_after_the_stage_all_have_the_same() -> None:
    log_prob, reference = numbers(-1.0, -2.0, -0.5), numbers(-1.5, -1.0, -0.7)
    seen = replace(
        make_batch(torch.zeros(3, dtype=torch.float64), None, log_prob, reference, progress=0.4),
        turn=torch.tensor([0, 1, 2]),
    )
    part = Reinforce(kl=0.01, kl_by_turn=(0.5, 0.02), kl_by_turn_until=0.5)
    torch.testing.assert_close(part(log_prob, seen)[0], numbers(0.5, 0.02, 0.02) * k3(log_prob, reference))
    later = replace(seen, progress=0.5)
    torch.testing.assert_close(part(log_prob, later)[0], 0.01 * k3(log_prob, reference))
    alike = Reinforce(kl=0.3, kl_by_turn=(0.3,))
    assert torch.equal(gradient_of(alike, log_prob, seen), gradient_of(Reinforce(kl=0.3), log_prob, seen))
    assert torch.equal(part(log_prob, replace(seen, turn=None))[0], 0.5 * k3(log_prob, reference))
    assert Reinforce(kl_by_turn=(0.1,)).needs_reference and not Reinforce().needs_reference


def test_demonstrations_answer_twice_as_their_flaws_say() -> None:
    settings = SecondTrySettings(
        problems={"train": 40, "validation": 5, "gate": 5}, demonstrations={"train": 300}, digits=4, slips=0.5,
        kept=0.5, slips_again=0.4,
    )  # fmt: skip
    rows = make_rows(settings)["demonstrations"]["train"]
    assert {row["flaw"] for row in rows} == {"none", "wrong", "spoiled"}
    for row in rows:
        first, says, second = str(row["completion"]).split(TURNS)
        right = [attempt == f"#### {row['answer']}" for attempt in (first, second)]
        assert says == SAYS and right[1] == (row["flaw"] == "none") and (row["flaw"] != "spoiled" or right[0])
        assert all(len(attempt) == len(f"#### {row['answer']}") for attempt in (first, second))
