"""Choice of the groups that a round trains on, for completions in flight that may neither get too old nor be dropped.

A group is due in the last round that may train on it. A round takes those that ended first, as long as the groups that
it leaves can still be trained on in time: of the groups due within j rounds, it may leave j rounds' worth. The later
rounds of a training so contain every completion that was requested, the longest too; dropping groups would reduce the
mean length, and with it the reward.
"""

from __future__ import annotations

from collections.abc import Sequence


def taken_in_time(ended: Sequence[int], under_way: Sequence[int], number: int, prompts: int) -> list[int] | None:
    """Choose the groups of a round: the first to end, as long as all other groups can still be used in time.

    Args:
        ended: last possible round of each group that has ended, in the order in which they ended.
        under_way: last possible round of each group that was requested, ended or not.
        number: number of the round, not greater than any of these.
        prompts: number of groups of a round.

    Returns:
        Indices in `ended`, [prompts], ascending; None: other groups have to end first.
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
