"""The choice of groups for a round if groups have a maximum age: every group is taken once, and none too late."""

import random
from collections.abc import Callable, Sequence

import pytest

from models.training.due import taken_in_time


def test_hand_computed_choices() -> None:
    # Nothing is due yet, so the groups that ended first are taken.
    assert taken_in_time([5, 5, 5], [5, 5, 5, 5], number=3, prompts=2) == [0, 1]
    # Three groups are due by the next round, and a round can take two. So one is taken now, and the fresh one waits.
    assert taken_in_time([6, 6, 4], [6, 6, 4, 4, 4], number=3, prompts=2) == [0, 2]
    # One group is due now and has not ended.
    assert taken_in_time([6, 6, 6], [6, 6, 6, 3], number=3, prompts=2) is None
    # Too few groups have ended.
    assert taken_in_time([5], [5, 5], number=3, prompts=2) is None


Rule = Callable[[Sequence[int], Sequence[int], int, int], list[int] | None]


def as_they_end(ended: Sequence[int], under_way: Sequence[int], number: int, prompts: int) -> list[int] | None:
    """Choose the groups for a round without regard to their age."""
    return list(range(prompts)) if len(ended) >= prompts else None


def rounds_late(rule: Rule, age: int, seed: int) -> list[int]:
    """Return by how many rounds each group is taken too late, [groups]; negative: early.

    A group begins in any round after it was requested. Groups end in the worst order: the group that is due last always
    ends first.
    """
    draw = random.Random(seed)
    prompts, rounds = draw.randint(1, 5), 40
    asked = 0
    begun: dict[int, int] = {}
    under_way: list[int] = []
    ended: list[int] = []
    late: dict[int, int] = {}
    for number in range(rounds):
        while asked < min(number + 1 + age, rounds) * prompts:
            under_way.append(asked)
            asked += 1
        for group in under_way:
            if group not in begun and draw.random() < 0.8:
                begun[group] = number
        due = {group: begun.get(group, number) + age for group in under_way}
        while (places := rule([due[group] for group in ended], list(due.values()), number, prompts)) is None:
            waiting = [group for group in under_way if group not in ended]
            ended.append(max(waiting, key=lambda group: (due[group], draw.random())))
        assert len(set(places)) == prompts
        taken = [ended[place] for place in places]
        late |= {group: number - due[group] for group in taken}
        under_way = [group for group in under_way if group not in taken]
        ended = [group for group in ended if group not in taken]
    assert sorted(late) == list(range(rounds * prompts))
    return list(late.values())


@pytest.mark.parametrize("age", [2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_whatever_ends_when_every_group_is_taken_once_and_none_is_late(age: int, seed: int) -> None:
    assert max(rounds_late(taken_in_time, age, seed)) <= 0 < max(rounds_late(as_they_end, age, seed))
