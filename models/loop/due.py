"""Which groups of completions a round trains on where none may grow too old and none is dropped.

A group is due in the last round that may train on it. A round takes those that ended first, as long as what it leaves
behind can still be trained on in time: of what is due within j rounds, it may leave j rounds' worth. The later rounds
of a training so see every completion that was asked for, the longest too; what dropping them would take away is lost
to the mean length, and with it to the reward.
"""

from __future__ import annotations

from collections.abc import Sequence


def taken_in_time(ended: Sequence[int], under_way: Sequence[int], number: int, prompts: int) -> list[int] | None:
    """Choose the groups of a round, by earliest end among those that leave no other group too late.

    Args:
        ended: the rounds that the groups that have ended are due in, in the order in which they ended.
        under_way: those of all groups that were asked for, ended or not.
        number: the round, no later than any of them.
        prompts: groups of a round.

    Returns:
        Places in `ended`, [prompts], rising; None: others have to end first.
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
