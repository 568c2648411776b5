"""Groups of at least k completions, for advantages that reward the best of a subset of k."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from models.base.errors import UserError
from models.method.scored import Scored


def groups_of_at_least(k: int, scored: Scored) -> Iterator[Tensor]:
    """Yield the indices of the completions of each prompt, [of the group], after a check that there are at least k.

    Raises:
        UserError: a group holds fewer than k.
    """
    groups = scored.groups
    for number in range(int(groups.max()) + 1 if len(groups) else 0):
        members = (groups == number).nonzero().squeeze(-1)
        if len(members) < k:
            problem = scored.rollouts[int(members[0])].problem.id
            raise UserError(f"advantage.k is {k}, but problem {problem} has {len(members)} completions; lower it")
        yield members
