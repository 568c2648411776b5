"""Curricula: the prompts that each rule chooses, the counts that it uses, and a resumed run's equal choices."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method import tally as tallies
from models.method.curriculum import CurriculumSettings, choose, drawn, drawn_at_most, note, prompts_of_round, solved
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.tally import Tally
from models.parts.rollouts.sample import Sample
from models.recipes.load import load_recipe
from models.training.score import Scoring
from models.training.tries import Tries
from tests.support.tiny_loops import SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

pytestmark = pytest.mark.rotating(of=6)

MANY = [Problem(f"q{number}", "", tokens=(3,) * (1 + number)) for number in range(30)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


def ids(problems: Sequence[Problem]) -> list[str]:
    return [problem.id for problem in problems]


def chosen(
    settings: CurriculumSettings,
    tally: Tally | None = None,
    count: int = 8,
    number: int = 0,
    rounds: int = 30,
    seed: int = 1,
    problems: Sequence[Problem] = MANY,
) -> list[str]:
    return ids(choose(problems, settings, tally or Tally(), count, number, rounds, seed))


def test_shuffled_is_the_order_that_it_always_was() -> None:
    assert chosen(CurriculumSettings(), number=5) == ids(prompts_of_round(MANY, 8, 5, 1))


def test_the_estimate_by_hand() -> None:
    """Three of four are right, then none of four. With discount 1/2, the estimate is (1 + 3/2) / (2 + 4/2 + 4)."""
    tally, settings = Tally(), CurriculumSettings(discount=0.5)
    assert solved(tally, "p0") == 0.5
    note(tally, scored(torch.tensor([1.0, 1.0, 0.0, 1.0]), [4]), settings)
    assert solved(tally, "p0") == 4 / 6
    note(tally, scored(torch.zeros(4), [4]), settings)
    assert solved(tally, "p0") == 2.5 / 8


def test_what_is_counted_is_the_policys_own_within_nought_and_one_and_of_the_component_that_is_named() -> None:
    held = scored(torch.tensor([7.0, -3.0, 1.0]), [3], {"exact_answer": torch.tensor([0.0, 1.0, 0.0])})
    beside = replace(held.rollouts[2], source=replace(held.rollouts[2].source, origin="greedy"))
    tally = Tally()
    note(tally, replace(held, rollouts=[*held.rollouts[:2], beside]), CurriculumSettings())
    assert tally.seen == {"p0": (1.0, 2.0)}
    note(tally, held, CurriculumSettings(by="exact_answer", discount=1.0))
    assert tally.seen == {"p0": (2.0, 5.0)}


def test_prompts_come_in_proportion_to_the_variance_of_their_verdict() -> None:
    """The estimates are 1/2, 9/10 and 1/100, so the weights are 1, 0.1 + 0.9 * 0.36 and 0.1 + 0.9 * 0.0396."""
    tally = Tally(seen={"q0": (4.0, 8.0), "q1": (8.0, 8.0), "q2": (0.0, 98.0)})
    settings = CurriculumSettings(order="signal", floor=0.1)
    counts = Counter(chosen(settings, tally, count=1, number=number, problems=MANY[:3])[0] for number in range(4000))
    weights = [1.0, 0.1 + 0.9 * 4 * 0.9 * 0.1, 0.1 + 0.9 * 4 * 0.01 * 0.99]
    for name, weight in zip(("q0", "q1", "q2"), weights, strict=True):
        assert counts[name] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)


def test_with_a_floor_of_one_every_prompt_is_as_likely_and_none_comes_twice_before_all_have() -> None:
    assert sorted(ids(drawn(MANY, [1.0] * 30, 30, seed=2))) == sorted(ids(MANY))
    counts = Counter(ids(drawn(MANY, [1.0] * 30, 70, seed=3)))
    assert set(counts.values()) == {2, 3}


def test_phases_go_from_short_to_long_and_bring_back_what_is_hard() -> None:
    settings = CurriculumSettings(order="phases", phases=3, again=0.25)
    seen = {f"q{number}": ((0.0, 50.0) if number < 3 else (50.0, 50.0)) for number in range(10)}
    first, second, third = (chosen(settings, Tally(seen=seen), number=number) for number in (0, 10, 20))
    assert {int(name[1:]) for name in first} <= set(range(10))
    fresh, again = second[:6], second[6:]
    assert {int(name[1:]) for name in fresh} <= set(range(10, 20)) and {int(name[1:]) for name in again} <= set(
        range(10)
    )
    assert {int(name[1:]) for name in third[:6]} <= set(range(20, 30))
    hard = Counter(name for number in range(10, 20) for name in chosen(settings, Tally(seen=seen), number=number)[6:])
    assert sum(hard[f"q{number}"] for number in range(3)) >= 15  # of twenty; the others are almost always solved


def test_the_phases_visit_all_of_their_prompts_once_an_epoch() -> None:
    settings = CurriculumSettings(order="phases", phases=2, again=0.0)
    visited = [name for number in range(3) for name in chosen(settings, count=5, number=number, rounds=6)]
    assert sorted(visited) == sorted(f"q{number}" for number in range(15))


WAYS: dict[str, dict[str, Any]] = {
    "signal": {"order": "signal"},
    "phases": {"order": "phases", "phases": 2},
    "adaptive": {"order": "adaptive", "every": 4},
    "filter": {"low": 0.02, "high": 0.98, "tried": 5, "by": "brief"},
}


@pytest.mark.parametrize(
    ("way", "staleness"), [("signal", 0), ("signal", 1), ("phases", 1), ("adaptive", 0), ("filter", 0), ("filter", 1)]
)
def test_a_killed_run_goes_on_and_ends_with_the_weights_of_one_that_was_never_interrupted(
    start: Path, tmp_path: Path, way: str, staleness: Literal[0, 1]
) -> None:
    schedule = replace(
        SCHEDULE, staleness=staleness, minibatches=1, epochs=1, curriculum=CurriculumSettings(**WAYS[way])
    )
    whole, diary = run(start, tmp_path / "whole", schedule=schedule)
    run(start, tmp_path / "killed", schedule=schedule, killed_in=5)
    resumed, after = run(start, tmp_path / "killed", schedule=schedule)
    assert after.resumed == [4] and same_weights(whole, resumed) and whole.tally == resumed.tally
    counted = [values["rollouts/completions"] for values in diary.metrics.values()]
    assert sum(counted) == whole.tally.completions
    extra = {"signal": 0, "phases": 0, "filter": 5 * 4, "adaptive": 2 * 6 * 4}[way]  # two blocks of six prompts
    assert whole.tally.completions == 6 * 16 + extra
    shuffled, _ = run(start, tmp_path / "plain", schedule=replace(schedule, curriculum=CurriculumSettings()))
    assert not same_weights(whole, shuffled)


def test_the_filter_trains_on_what_it_kept_alone_and_refuses_when_nothing_is(start: Path, tmp_path: Path) -> None:
    keep = CurriculumSettings(low=0.02, high=0.98, tried=5, by="brief")
    learner, diary = run(start, tmp_path / "some", schedule=replace(SCHEDULE, rounds=3, curriculum=keep))
    visited = {row["problem"] for rows in diary.samples.values() for row in rows}
    assert learner.tally.kept is not None
    assert visited and visited <= set(learner.tally.kept) and len(learner.tally.kept) <= 5
    nothing = CurriculumSettings(low=0.999, tried=2, by="sevens")
    with pytest.raises(UserError, match=r"schedule\.curriculum: none of the prompts that were tried"):
        run(start, tmp_path / "none", schedule=replace(SCHEDULE, curriculum=nothing))


@dataclass(frozen=True, kw_only=True)
class Twice(Sample):
    """Source of two completions for every prompt, each of one token."""

    name = "twice"
    prompts: int = 4

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        return [Rollout(problem, at, (5,), None, "", True) for at, problem in enumerate(problems) for _ in range(2)]


class Easy(Reward):
    """Reward that grows with the number in the prompt's id."""

    name = "easy"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor([int(rollout.problem.id[1:]) / 30 for rollout in rollouts])


class Still:
    """A meter that measures nothing."""

    def lap(self, stage: str) -> None:
        pass

    def generated(self, rollouts: Sequence[Rollout]) -> None:
        pass


def tries(resources: RunResources, **settings: Any) -> Tries:
    slots = replace(SLOTS, rollouts=Twice(), rewards=[Easy()])
    return Tries(slots, Scoring(slots.rewards), CurriculumSettings(**settings), cast(Any, Still()))


def test_a_block_comes_from_the_easiest_to_the_hardest_of_the_prompts_that_were_to_come() -> None:
    resources = make_resources(seed=3)
    tries(resources, order="adaptive", every=3).order_block(resources, MANY, 3, 30)
    tally = resources.learner.tally
    coming = [name for number in (3, 4, 5) for name in ids(prompts_of_round(MANY, 4, number, 3))]
    assert tally.order == sorted(coming, key=lambda name: -int(name[1:])) != coming
    assert tally.completions == 2 * 12
    before = list(tally.order)
    tries(resources, order="adaptive", every=3).order_block(resources, MANY, 4, 30)
    assert tally.order == before and tally.completions == 2 * 12  # nothing is tried again within a block
    block = CurriculumSettings(order="adaptive", every=3)
    visited = [name for number in (3, 4, 5) for name in chosen(block, tally, count=4, number=number)]
    assert visited == before


def test_the_last_block_tries_no_prompts_of_rounds_that_never_come() -> None:
    resources = make_resources(seed=3)
    tries(resources, order="adaptive", every=3).order_block(resources, MANY, 6, 7)
    assert len(resources.learner.tally.order) == 4 and resources.learner.tally.completions == 8


def test_the_filter_keeps_by_hand_and_tries_once() -> None:
    resources = make_resources(seed=3)
    kept = tries(resources, low=0.5, high=0.81, tried=30).passing(resources, MANY)
    assert ids(kept) == [f"q{number}" for number in range(15, 25)]  # rewards from 15/30 to 24/30
    assert resources.learner.tally.completions == 60
    assert (
        tries(resources, low=0.0, high=0.1).passing(resources, MANY) == kept
        and resources.learner.tally.completions == 60
    )


def test_the_rows_of_a_run_are_those_of_its_rounds_or_all_where_rewards_decide() -> None:
    plain, by_signal = CurriculumSettings(), CurriculumSettings(order="signal")
    rows = ids(drawn_at_most(MANY, plain, 4, 3, 1, open_ended=False))
    assert rows == [name for number in range(3) for name in ids(prompts_of_round(MANY, 4, number, 1))]
    assert drawn_at_most(MANY, plain, 4, 3, 1, open_ended=True) == MANY
    assert drawn_at_most(MANY, by_signal, 4, 3, 1, open_ended=False) == MANY


def test_a_tally_is_written_to_the_last_digit() -> None:
    tally = Tally(
        completions=3, seen={"a": (0.1 + 0.2, 1 / 3)}, levels={2: (0.1 + 0.2, 1 / 3)}, kept=["a"], order=["a", "b"]
    )
    assert tallies.read(tallies.written(tally)) == tally


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"low": 0.9, "high": 0.1}, "low is 0.9, more than high"),
        ({"order": "adaptive"}, "order is adaptive, which tries prompts between rounds: set async to 0"),
        ({"by": "judge"}, "no reward is labelled 'judge'"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    keys = [f"schedule.curriculum.{key}={value}" for key, value in settings.items()]
    with pytest.raises(UserError, match=said):
        load_recipe("grpo", [*keys, "schedule.async=1"])


def test_a_curriculum_over_answers_of_the_data_is_refused() -> None:
    with pytest.raises(UserError, match=r"takes its prompts from preferences"):
        load_recipe("dpo", ["schedule.curriculum.order=signal"])
