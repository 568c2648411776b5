"""Gradient-free search for the point of largest worth, one trial after the other (Nelder and Mead 1965).

    point = search.point                    to be tried
    search = search.after(worth)            as long as one likes; search.best is the best corner of the simplex

A simplex of K + 1 corners in K dimensions reflects its worst corner through the others; it expands if the result is the
best so far, contracts if it is not, and shrinks to its best corner if nothing helps. The step sizes are those of the
textbook: 1, 2, 1/2 and 1/2. A trial may take long, and its worth may be noisy: the state is data, a row of numbers that
is stored in a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

Stage = Literal["corner", "reflected", "expanded", "outside", "inside"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, eq=False)
class NelderMead:
    """State of the search. All tensors are float64."""

    corners: Tensor
    """[K + 1, K]; best first once all of them are tried."""
    worth: Tensor
    """Worth of each corner, [K + 1]; NaN if it is not tried yet."""
    point: Tensor
    """Point to be tried now, [K]."""
    stage: Stage
    """Move of the simplex that the point belongs to."""
    reflected: Tensor
    """The reflected worst corner and its worth, [K + 1]."""

    @property
    def best(self) -> Tensor:
        """The corner of largest worth among those that were tried, [K]; the first if none was."""
        return self.corners[int(self.worth.nan_to_num(-torch.inf).argmax())]

    def after(self, worth: float) -> NelderMead:
        """Return the next state of the search, given the worth of the current point."""
        if self.stage == "corner":
            tried = self.worth.clone()
            tried[int(tried.isnan().nonzero()[0])] = worth
            return replace(self, worth=tried)._next()
        if self.stage == "reflected":
            return self._reflected(worth)
        known = float(self.reflected[-1])
        if self.stage == "expanded":
            return self._instead(self.point, worth) if worth > known else self._instead(self.reflected[:-1], known)
        better = worth >= known if self.stage == "outside" else worth > float(self.worth[-1])
        return self._instead(self.point, worth) if better else self._shrunk()

    def written(self) -> Tensor:
        """Write the state as a row of (K + 1)(K + 2) + 2 K + 2 numbers."""
        stage = self.point.new_tensor([STAGES.index(self.stage)])
        return torch.cat([self.corners.flatten(), self.worth, self.point, self.reflected, stage])

    @staticmethod
    def read(row: Tensor, dimensions: int) -> NelderMead:
        """Read the state that `written` wrote, in K dimensions."""
        corners = dimensions + 1
        sizes = [corners * dimensions, corners, dimensions, corners, 1]
        flat, worth, point, reflected, stage = row.split(sizes)
        return NelderMead(flat.view(corners, dimensions), worth, point, STAGES[int(stage)], reflected)

    def _next(self) -> NelderMead:
        """Return the search with the next corner to be tried or, if all are known, the reflection of the worst."""
        unknown = self.worth.isnan().nonzero()
        if len(unknown):
            return replace(self, stage="corner", point=self.corners[int(unknown[0])])
        order = self.worth.argsort(descending=True, stable=True)
        ordered = replace(self, corners=self.corners[order], worth=self.worth[order])
        return replace(ordered, stage="reflected", point=ordered._beyond(1.0))

    def _beyond(self, step: float) -> Tensor:
        """Return the point beyond the centre of the other corners, `step` times the worst corner's distance from it."""
        centre = self.corners[:-1].mean(0)
        return centre + step * (centre - self.corners[-1])

    def _reflected(self, worth: float) -> NelderMead:
        seen = replace(self, reflected=torch.cat([self.point, self.point.new_tensor([worth])]))
        if worth > float(self.worth[0]):
            return replace(seen, stage="expanded", point=self._beyond(2.0))
        if worth > float(self.worth[-2]):
            return self._instead(self.point, worth)
        if worth > float(self.worth[-1]):
            return replace(seen, stage="outside", point=self._beyond(0.5))
        return replace(seen, stage="inside", point=self._beyond(-0.5))

    def _instead(self, point: Tensor, worth: float) -> NelderMead:
        """Return the search with another corner instead of the worst."""
        corners, known = self.corners.clone(), self.worth.clone()
        corners[-1], known[-1] = point, worth
        return replace(self, corners=corners, worth=known)._next()

    def _shrunk(self) -> NelderMead:
        """Return the search with every corner half as far from the best, all to be tried again."""
        corners = self.corners[0] + 0.5 * (self.corners - self.corners[0])
        known = torch.cat([self.worth[:1], torch.full_like(self.worth[1:], torch.nan)])
        return replace(self, corners=corners, worth=known)._next()


def begin_search(first: Tensor, reach: float) -> NelderMead:
    """Begin a search from a point, [K], float64, and from the points with one coordinate each larger by `reach`."""
    corners = torch.cat([first[None], first + reach * torch.eye(len(first), dtype=first.dtype)])
    unknown = torch.full((len(corners),), torch.nan, dtype=first.dtype)
    return NelderMead(corners, unknown, corners[0], "corner", torch.zeros_like(unknown))
