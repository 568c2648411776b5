"""Further prompts that replace prompts without signal: which are sampled, how they count, and resumed runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method import tally as tallies
from models.method.curriculum import further_prompts
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.tally import Tally
from models.parts.rollouts.sample import Sample
from models.parts.select.drop_flat import DropFlat
from models.recipes.comparison import contenders
from models.recipes.load import load_recipe
from models.training.gather import RoundCompletions, gather
from models.training.score import Scoring
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_resources import make_resources


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


@dataclass(frozen=True, kw_only=True)
class Scripted(Sample):
    """A source of two completions per prompt, one token each, that records the prompts and the seed of each call."""

    name = "scripted"

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        ASKED.append(([problem.id for problem in problems], resources.seed))
        return [
            Rollout(problem, group, (5 + member,), torch.zeros(1), "", True)
            for group, problem in enumerate(problems)
            for member in range(2)
        ]


@dataclass(frozen=True, kw_only=True)
class Spreads(Reward):
    """A reward that differs between the completions of the prompts `ids`, and is equal for all others."""

    name = "spreads"
    ids: tuple[str, ...] = ()

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor(
            [float(rollout.problem.id in self.ids and rollout.completion[0] == 6) for rollout in rollouts]
        )


ASKED: list[tuple[list[str], int]] = []


class Quiet:
    """A meter that only counts the completions of further draws."""

    def __init__(self) -> None:
        self.made = 0

    def lap(self, stage: str) -> None:
        pass

    def generated(self, rollouts: Sequence[Rollout]) -> None:
        self.made += len(rollouts)


def gathered(
    spreading: tuple[str, ...], refills: int, prompts: int = 3, number: int = 0
) -> tuple[RoundCompletions, Quiet]:
    ASKED.clear()
    source = Scripted(prompts=prompts)
    slots = replace(SLOTS, rollouts=source, rewards=[Spreads(ids=spreading)], select=[DropFlat(refills=refills)])
    resources = make_resources(seed=3)
    meter: Any = Quiet()
    first = source(resources, PROBLEMS[:prompts], number)
    return gather(resources, slots, Scoring(slots.rewards), PROBLEMS, first, number, meter), meter


def test_without_refills_what_is_missing_stays_missing() -> None:
    actual, meter = gathered(("p1", "p4", "p5"), refills=0)
    assert actual.draws == 0 and len(ASKED) == 1 and meter.made == 0
    assert {rollout.problem.id for rollout in actual.chosen.rollouts} == {"p1"} and len(actual.scored.rollouts) == 6


def test_as_many_prompts_as_are_missing_are_drawn_until_the_round_is_full() -> None:
    actual, meter = gathered(("p1", "p4", "p5"), refills=9)
    assert {rollout.problem.id for rollout in actual.chosen.rollouts} == {"p1", "p4", "p5"}
    asked = [ids for ids, _ in ASKED]
    assert len(asked[1]) == 2 and all(len(ids) <= 2 for ids in asked[1:])  # of three prompts, two had no signal
    everything = [name for ids in asked for name in ids]
    assert len(set(everything)) == len(everything)  # no prompt occurs twice in a round
    assert len(actual.scored.rollouts) == 2 * len(everything) and meter.made == 2 * len(everything) - 6
    assert actual.draws == len(ASKED) - 1 == len({seed for _, seed in ASKED}) - 1  # every draw has a different seed


def test_completions_of_one_prompt_stay_one_group_and_those_of_two_draws_are_two() -> None:
    actual, _ = gathered(("p0", "p1", "p4", "p5"), refills=9)
    names: dict[int, set[str]] = {}
    for rollout in actual.scored.rollouts:
        names.setdefault(rollout.group, set()).add(rollout.problem.id)
    assert all(len(ids) == 1 for ids in names.values())
    assert len(names) == len({rollout.problem.id for rollout in actual.scored.rollouts})
    assert actual.chosen.groups.bincount().tolist() == [2] * 3


def test_the_limit_ends_it_and_so_does_the_end_of_the_data() -> None:
    actual, _ = gathered((), refills=1)
    assert actual.draws == 1 and len(actual.chosen.rollouts) == 0 and len(actual.scored.rollouts) == 12
    actual, _ = gathered(("p3",), refills=1000)  # there are six problems
    assert {rollout.problem.id for rollout in actual.scored.rollouts} == {problem.id for problem in PROBLEMS}
    assert {rollout.problem.id for rollout in actual.chosen.rollouts} == {"p3"} and actual.draws <= 3


def test_the_same_round_draws_the_same_further_prompts_and_another_round_others() -> None:
    def order(number: int, seed: int = 3) -> list[str]:
        return [problem.id for problem in further_prompts(PROBLEMS, PROBLEMS[:2], number, seed)]

    assert order(4) == order(4) and sorted(order(4)) == ["p2", "p3", "p4", "p5"]
    assert len({tuple(order(number)) for number in range(8)}) > 2 and order(4) != order(4, seed=5)


REFILLED = replace(SLOTS, select=[DropFlat(tolerance=0.09, refills=3)])


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_killed_run_goes_on_and_ends_with_the_weights_of_one_that_was_never_interrupted(
    start: Path, tmp_path: Path, staleness: Literal[0, 1]
) -> None:
    schedule = replace(SCHEDULE, staleness=staleness)
    whole, diary = run(start, tmp_path / "whole", schedule=schedule, slots=REFILLED)
    run(start, tmp_path / "killed", schedule=schedule, slots=REFILLED, killed_in=5)
    resumed, after = run(start, tmp_path / "killed", schedule=schedule, slots=REFILLED)
    assert after.resumed == [4] and same_weights(whole, resumed)
    assert sum(values["rollouts/draws"] for values in diary.metrics.values()) > 0  # the run did refill
    assert whole.tally == resumed.tally
    drawn = [values["rollouts/completions"] for values in diary.metrics.values()]
    assert whole.tally.completions == sum(drawn) > 6 * 16 and set(drawn) != {16}
    plain, _ = run(
        start, tmp_path / "plain", schedule=schedule, slots=replace(SLOTS, select=[DropFlat(tolerance=0.09)])
    )
    assert not same_weights(whole, plain)


@pytest.mark.rotating(of=6)
def test_a_budget_of_completions_ends_the_run_with_the_round_that_reaches_it_resumed_or_not(
    start: Path, tmp_path: Path
) -> None:
    schedule = replace(SCHEDULE, rounds=50, completions=4 * 16 + 1)
    whole, diary = run(start, tmp_path / "whole", schedule=schedule)
    assert sorted(diary.metrics) == [1, 2, 3, 4, 5] and whole.tally.completions == 80
    run(start, tmp_path / "killed", schedule=schedule, killed_in=3)
    resumed, after = run(start, tmp_path / "killed", schedule=schedule)
    assert sorted(after.metrics) == [3, 4, 5] and same_weights(whole, resumed)


def test_a_tally_is_written_to_the_last_digit_and_of_an_old_checkpoint_nothing_is_counted() -> None:
    assert tallies.read(tallies.written(Tally(completions=7))) == Tally(completions=7)
    assert tallies.read(b"{}") == Tally()


def test_refills_beside_parts_that_cannot_draw_again_are_refused() -> None:
    refills = 'select=[{"name": "drop_flat", "refills": 2}]'
    with pytest.raises(UserError, match=r"select\.refills draws .*, but rollouts replay give completions of earlier"):
        load_recipe("grpo", [refills, "rollouts.name=replay"])
    with pytest.raises(UserError, match=r"select\.refills draws further prompts, but rewards implicit_process learns"):
        load_recipe("prime", [refills])


def test_a_comparison_counts_every_draw_against_the_budget() -> None:
    first, other = contenders(["grpo", "dapo"], [], 2, "sampled_accuracy", budget=5120)
    assert other.recipe.schedule is not None
    assert other.recipe.open_ended and other.recipe.schedule.completions == 5120
    assert first.recipe.schedule is not None
    assert (
        not first.recipe.open_ended and first.recipe.schedule.completions is None and first.rounds == other.rounds == 10
    )


class Away(Reward):
    """A reward without a value for any completion."""

    name = "away"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.full((len(rollouts),), torch.nan)


def test_a_reward_that_is_away_makes_every_prompt_flat_and_no_further_ones_are_drawn() -> None:
    ASKED.clear()
    source = Scripted(prompts=3)
    meter: Any = Quiet()
    slots = replace(SLOTS, rollouts=source, rewards=[Away()], select=[DropFlat(refills=9)])
    resources = make_resources(seed=3)
    gathered = gather(resources, slots, Scoring(slots.rewards), PROBLEMS, source(resources, PROBLEMS[:3], 0), 0, meter)
    assert gathered.draws == 0 and len(ASKED) == 1 and gathered.scored.watched == {"rewards/away/failures": 6.0}
