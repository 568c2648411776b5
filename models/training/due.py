"""The choice of a round's groups of completions if none may become too old and none is dropped.

A group is due in the last round that may train on it. A round takes those that ended first, as long as the groups that
it leaves can still be trained on in time: of the groups due within j rounds, it may leave j rounds' worth. The later
rounds of a training so contain every completion that was requested, the longest too; dropping groups would reduce the
mean length, and with it the reward.
"""

from __future__ import annotations

from collections.abc import Sequence


def taken_in_time(ended: Sequence[int], under_way: Sequence[int], number: int, prompts: int) -> list[int] | None:
    """Choose the groups of a round, by earliest end among those that leave no other group too late.

    Args:
        ended: the rounds that the groups that have ended are due in, in the order in which they ended.
        under_way: those of all groups that were requested, ended or not.
        number: the round, no later than any of them.
        prompts: groups of a round.

    Returns:
        Places in `ended`, [prompts], ascending; None: others have to end first.
    """
    owed = {due: sum(other <= due for other in under_way) - (due - number) * prompts for due in set(under_way)}
    chosen: list[int] = []
    for place, due in enumerate(ended):
        after = {by: count - (due <= by) for by, count in owed.items()}
        if max(after.values()) < prompts - len(chosen):
            chosen.append(place)
            owed = after
            if len(chosen) == prompts:
                return chosen
    return None
