"""A search tree of turns: the candidates at each point of an episode, their outcomes, and the choice of next nodes.

    root - turn a - answer - turn a'         a node is a turn of the policy and the environment's answer
         - turn b - answer - turn b'         siblings are turns that were tried at the same point

The worth of an episode that ends is added at every node on its path: W(n) is the sum, N(n) the count, and a node's mean
Q(n) = W(n) / N(n) is the Monte-Carlo estimate of its worth under the policy, as far as the search visits nodes as the
policy would. Instead of the mean a node may have the worth of its best child, which is what the policy could reach from
there, or the mean of its children weighted by how often the policy drew each, which is the policy's own worth
independent of how often the search visited them. If the search has a critique c(n) in [0, 1] of each turn, as in Agent
Q (paper 82), the value of a node is

    V(n) = (1 - a) Q(n) + a c(n)            c(n) alone if no episode has ended below it

except for a failed node, below which episodes ended and none of them reached the goal: there the critique is ignored.

The next node that is expanded:

    uct       down from the root to the child of the highest V + k sqrt(ln N(parent) / (1 + N(child))), until a node has
              not all its candidates; from there one turn after the other to the end of the episode (Kocsis and
              Szepesvari 2006; in the form of Agent Q)
    best      the open node of the highest V; one without has the value of its parent
    puct      as uct, by V + k P(child) sqrt(N(parent)) / (1 + N(child)); P: the policy's probability of the turn. No
              episode is played on from there: the caller estimates the worth of a new node (AlphaZero, in the form of
              AlphaMath, paper 292)
    breadth   all open nodes of the least depth
    depth     the deepest open node, the first of several in depth-first order (DFSDT, paper 359)

A tree may have a weight w of the policy's prior: under uct, the bound's second term is then multiplied by the turn's
share of the probability of its siblings, times their number, to the power of w. With w = 0, nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from models.method.episode import Cut, Turn

Order = Literal["uct", "puct", "best", "breadth", "depth"]
"""The node that is expanded next."""
Backup = Literal["mean", "best", "policy"]
"""Worth of a node: the mean of the episodes below it, the worth of its best child, or the mean of its children weighted
by how often the policy drew them."""


@dataclass(frozen=True, kw_only=True)
class Valuing:
    """Settings of a node's value: how worth is backed up, and the weight of the critique."""

    backup: Backup = "mean"
    critique_share: float = 0.0
    """Weight of the critique in a node's value (a), in [0, 1]."""


@dataclass(eq=False)
class Node:
    """A turn of the policy with its outcome. The root has no turn: it is the point at which the policy begins."""

    parent: Node | None = None
    tokens: tuple[int, ...] = ()
    """Tokens of the turn, [tokens]."""
    log_probs: Tensor | None = None
    """Log-probs under the policy that drew them, [tokens], nats."""
    turn: Turn = field(default_factory=lambda: Turn(0, 0))
    """Text of the turn and its answer; its positions are within `tokens`."""
    response_ids: tuple[int, ...] = ()
    """Ids of the text that the policy reads after the turn, [tokens]; for the root after the prompt."""
    state: str = ""
    """State in which the next turn is taken, as the environment reports it."""
    over: bool = False
    """Whether the episode has ended here."""
    cut: Cut = ""
    finished: bool = True
    """Whether the episode counts as finished, like a completion that was not cut."""
    masked: bool = False
    """Whether the environment broke here, and the recipe leaves such an episode out."""
    critique: float | None = None
    prior: float = 1.0
    """The policy's probability of the turn when it was drawn, in [0, 1]."""
    times: int = 1
    """How often the policy drew it at this point."""
    drawn: int = 0
    """Candidates that were drawn here; equal ones are the same child."""
    visits: int = 0
    """Episodes that ended here or below (N)."""
    total: float = 0.0
    """Sum of their worth (W)."""
    solved: int = 0
    """Number of them that reached the goal."""
    missed: int = 0
    """Number of them that did not; for the rest it is unknown."""
    children: list[Node] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Number of turns up to this one, inclusive."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def failed(self) -> bool:
        """Whether episodes ended here or below, and none of them reached the goal."""
        return 0 < self.missed == self.visits

    @property
    def path(self) -> list[Node]:
        """The nodes below the root down to this one."""
        return [] if self.parent is None else [*self.parent.path, self]

    @property
    def history(self) -> tuple[int, ...]:
        """All ids after the prompt and before the next turn, [tokens]."""
        before = () if self.parent is None else self.parent.history
        return (*before, *self.tokens, *self.response_ids)

    def below(self) -> Iterator[Node]:
        """Yield this node and all below it, in the order in which they were made within each parent."""
        yield self
        for child in self.children:
            yield from child.below()

    @property
    def reached(self) -> bool | None:
        """Whether an episode that ended here or below reached the goal; None: unknown."""
        return True if self.solved else False if self.failed else None

    def ended(self, worth: float, solved: bool | None) -> None:
        """Add an episode that ended here to every node of its path, the root included.

        Args:
            worth: worth of the episode.
            solved: whether it reached the goal; None: unknown.
        """
        node: Node | None = self
        while node is not None:
            node.visits += 1
            node.total += worth
            node.solved += solved is True
            node.missed += solved is False
            node = node.parent

    def estimated(self, worth: float) -> None:
        """Add an estimated worth of continuing from here to every node of the path, as a visit without an end."""
        node: Node | None = self
        while node is not None:
            node.visits += 1
            node.total += worth
            node = node.parent

    def again(self) -> None:
        """Count that the same turn was drawn once more.

        If the episode ended with the turn, another episode has ended with the same result.
        """
        self.times += 1
        if self.over and self.visits:
            self.ended(self.total / self.visits, self.reached)

    def value(self, valuing: Valuing) -> float | None:
        """Return the value of the node; None if it is unknown."""
        worth = self._worth_of_episodes(valuing)
        if self.critique is None or not valuing.critique_share or self.failed:
            return worth
        if worth is None:
            return self.critique
        return (1.0 - valuing.critique_share) * worth + valuing.critique_share * self.critique

    def _worth_of_episodes(self, valuing: Valuing) -> float | None:
        if not self.visits:
            return None
        child_values = [
            (child.times, value) for child in self.children if (value := child._worth_of_episodes(valuing)) is not None
        ]
        if child_values and valuing.backup == "best":
            return max(value for _, value in child_values)
        if child_values and valuing.backup == "policy":
            return sum(times * value for times, value in child_values) / sum(times for times, _ in child_values)
        return self.total / self.visits

    def spent(self, candidates: int) -> bool:
        """Return whether this node and all below it have drawn `candidates` candidates each, or have ended."""
        if self.over:
            return True
        return self.drawn >= candidates and all(child.spent(candidates) for child in self.children)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Settings of a tree's growth."""

    order: Order
    candidates: int
    """Turns that are tried at each node."""
    nodes: int
    """Turns that are drawn before the search ends."""
    goals: int
    """Episodes that reach the goal before the search ends; 0: no such limit."""
    exploration: float
    """Exploration constant of uct and puct (k)."""
    valuing: Valuing


@dataclass(frozen=True)
class Expansion:
    """A node from which turns are drawn next, and their number."""

    node: Node
    count: int


@dataclass
class SearchTree:
    """The state of one search."""

    growth: Growth
    root: Node = field(default_factory=Node)
    drawn: int = 0
    prior_weight: float = 0.0
    """Weight of the policy's prior under uct (w), in [0, 1]."""
    _playing: Node | None = None
    """For uct: the current node of the episode that is being played to its end."""

    @property
    def done(self) -> bool:
        """Whether the search draws no more candidates."""
        growth = self.growth
        reached = bool(growth.goals) and self.root.solved >= growth.goals
        return reached or self.drawn >= growth.nodes or self.root.spent(growth.candidates)

    def next(self) -> list[Expansion]:
        """Return the nodes to expand next; none: the search is over, and every episode that it began has ended.

        An episode that is open when the search is done is played to its end, without further candidates. Under uct this
        is the last one; otherwise every node that was never expanded.
        """
        if self._playing is not None and not self._playing.over:
            return [Expansion(self._playing, 1)]
        if self.done:
            open_nodes = [] if self.growth.order in ("uct", "puct") else self._open_nodes()
            return [Expansion(node, 1) for node in open_nodes if not node.drawn]
        return list(self._within_budget(self._choose_nodes()))

    def _choose_nodes(self) -> list[Node]:
        if self.growth.order in ("uct", "puct"):
            return [self._descend()]
        nodes = self._open_nodes()
        match self.growth.order:
            case "breadth":
                least = min(node.depth for node in nodes)
                return [node for node in nodes if node.depth == least]
            case "depth":
                return [max(nodes, key=lambda node: node.depth)]
        return [max(nodes, key=self._estimate)]

    def _within_budget(self, nodes: list[Node]) -> Iterator[Expansion]:
        remaining = self.growth.nodes - self.drawn
        for node in nodes:
            count = min(self.growth.candidates - node.drawn, remaining)
            if count:
                yield Expansion(node, count)
            remaining -= count

    def grown(self, expansion: Expansion, new: list[Node]) -> None:
        """Record the result of an expansion.

        Args:
            expansion: the node, and the number of candidates drawn from it.
            new: nodes that the candidates led to, [candidates]; equal candidates have the same node.
        """
        expansion.node.drawn += expansion.count
        self.drawn += expansion.count
        if self.growth.order == "uct":
            open_nodes = [node for node in new if not node.over]
            self._playing = max(open_nodes, key=lambda node: node.critique or 0.0) if open_nodes else None

    def _open_nodes(self) -> list[Node]:
        return [node for node in self.root.below() if not node.over and node.drawn < self.growth.candidates]

    def _estimate(self, node: Node) -> float:
        value = node.value(self.growth.valuing)
        if value is not None or node.parent is None:
            return value or 0.0
        return self._estimate(node.parent)

    def _descend(self) -> Node:
        node, candidates = self.root, self.growth.candidates
        while node.drawn >= candidates:
            open_children = [child for child in node.children if not child.spent(candidates)]
            node = max(open_children, key=self._upper_bound)
        return node

    def _upper_bound(self, node: Node) -> float:
        assert node.parent is not None, "the root has no siblings"
        if self.growth.order == "puct":
            spread = node.prior * math.sqrt(node.parent.visits) / (1 + node.visits)
        else:
            spread = math.sqrt(math.log(max(1, node.parent.visits)) / (1 + node.visits))
            if self.prior_weight:
                siblings = node.parent.children
                share = node.prior * len(siblings) / (sum(sibling.prior for sibling in siblings) or 1.0)
                spread *= share**self.prior_weight
        return (node.value(self.growth.valuing) or 0.0) + self.growth.exploration * spread
