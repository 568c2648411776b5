"""A tree of answers, each of which criticises and rewrites the one above it (MC-NEST, arXiv 2411.15645; paper 353).

    select     a node that may still have children, by its UCT value
    refine     a critique of its answer, then a better answer: a new child
    score      R in [-100, 100] by the policy itself, or the value of a scorer;  Q = (min R + mean R) / 2
    backup     Q of a parent = (Q + max Q of its children) / 2, up to the root
    turn       answer of highest Q, the first of equals

    UCT(a) = Q(a) + exploration * sqrt(log(N(parent of a) + 1) / N(a));  the root is its own parent

A node is full when it has `children`, or a child with a higher Q. The other nodes are candidates. As in the published
code, the mixed strategy p of the equilibrium is uniform over the root's children and zero elsewhere. The choices are

    greedy     the highest UCT + p; the root, while it is a candidate, comes first
    sample     in proportion to max(UCT, 0) p (importance sampling)
    pairwise   a pair i, j in proportion to |UCT_i - UCT_j| p_i p_j, and the better of the pair

If all of these weights are zero, each candidate has the same chance. The published code has no bound at 0, where its
weights may be negative. It starts from an answer of the model or from "I don't know."; its models are GPT-4o and
Phi-3-mini. Here the root is the policy's own turn; if it did not end, it is not refined. The requests are those of
`criticise_improve`, in one conversation; the published code asks for critique, answer and score in separate requests. A
score that cannot be read is -100 instead of a second request. A rewritten answer that did not end, or has no room, is
left out, and the selected node counts as visited.
"""

from __future__ import annotations

import math
import random
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from models.agents.strategies.criticise_improve import CRITIQUE, IMPROVE, improved_drafts
from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, not_greedy, request_of_call
from models.agents.turn_scorer import NO_SCORER, Scorer
from models.answers.answers import extract_answer
from models.base.bounds import Count, Temperature
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LOWEST, HIGHEST = -100.0, 100.0
"""Bounds of a score by the policy itself."""
LIMIT, PENALTY = 95.0, 5.0
"""A score above LIMIT is reduced by PENALTY, because policies are too content with their answers."""
SelectionRule = Literal["greedy", "sample", "pairwise"]
CHOICE = 1 << 20
"""Number of the call whose seed the choices of nodes have; larger than that of any request."""


@dataclass(eq=False)
class RefinedAnswer:
    """A node of the tree."""

    turn: Generated
    parent: RefinedAnswer | None = None
    children: list[RefinedAnswer] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    value: float = -math.inf
    """Q."""
    visits: int = 0
    """N."""

    def add_score(self, score: float) -> None:
        """Add a score, and compute the value from all scores of the answer."""
        self.scores.append(score)
        self.value = (min(self.scores) + sum(self.scores) / len(self.scores)) / 2
        self.visits += 1

    def back_up(self) -> None:
        """Update the values and visits of the nodes above."""
        above = self.parent
        while above is not None:
            above.value = (above.value + max(child.value for child in above.children)) / 2
            above.visits += 1
            above = above.parent

    def is_full(self, children: int) -> bool:
        """Return whether the node gets no more than its present children."""
        return len(self.children) >= children or any(child.value > self.value for child in self.children)

    def uct(self, exploration: float) -> float:
        """Return the upper confidence bound of the value; infinite before the first visit."""
        if not self.visits:
            return math.inf
        parent = self.parent or self
        return self.value + exploration * math.sqrt(math.log(parent.visits + 1) / self.visits)

    @property
    def share(self) -> float:
        """Probability in the equilibrium: equal for all children of the root, 0 for the root and all nodes below."""
        return 1 / len(self.parent.children) if self.parent is not None and self.parent.parent is None else 0.0

    def __iter__(self) -> Iterator[RefinedAnswer]:
        """Yield the node and all nodes below it, level by level."""
        waiting = deque([self])
        while waiting:
            node = waiting.popleft()
            yield node
            waiting.extend(node.children)


def chosen_node(
    candidates: Sequence[RefinedAnswer],
    rule: SelectionRule,
    exploration: float,
    points: random.Random,
) -> RefinedAnswer:
    """Choose the node to refine among candidates; see the head of the file for the rules.

    Args:
        candidates: nodes that are not full, at least one.
        rule: how the choice is made.
        exploration: weight of the second term of UCT.
        points: random numbers of the turn.
    """
    bounds, shares = [node.uct(exploration) for node in candidates], [node.share for node in candidates]
    if rule == "greedy" or math.inf in bounds or len(candidates) == 1:
        worth = [
            math.inf if node.parent is None else bound + share
            for node, bound, share in zip(candidates, bounds, shares, strict=True)
        ]
        return candidates[worth.index(max(worth))]
    if rule == "sample":
        weights = [max(bound, 0.0) * share for bound, share in zip(bounds, shares, strict=True)]
        return points.choices(candidates, weights=weights if any(weights) else None)[0]
    pairs = [(first, second) for second in range(len(bounds)) for first in range(second)]
    weights = [abs(bounds[i] - bounds[j]) * shares[i] * shares[j] for i, j in pairs]
    if not any(weights):
        return points.choice(candidates)
    pair = points.choices(pairs, weights=weights)[0]
    return candidates[max(pair, key=bounds.__getitem__)]


@part("refine_tree")
class RefineTree(Strategy):
    """Answers in a tree, criticised and rewritten where the bound of their value is highest."""

    source = SourcePaper(
        353,
        "MC-NEST -- Enhancing Mathematical Reasoning in Large Language Models with a Monte Carlo Nash Equilibrium "
        "Self-Refine Tree (arXiv 2411.15645)",
        family="inference-time-search",
    )
    refinements: Annotated[int, Field(ge=0, le=256)] = 4
    """Number of rewritten answers; 0: the policy's own turn. The paper uses 4 and more."""
    select: SelectionRule = "sample"
    """Choice of the node to refine: by the highest UCT, in proportion to it, or the better of a pair."""
    children: Annotated[int, Field(ge=1, le=64)] = 2
    """Maximum number of children of a node. The paper uses 2."""
    exploration: NonNegativeFloat = 1.0
    """Weight of the second term of UCT, in units of the value. The paper uses 1."""
    temperature: Temperature = 1.0
    """Temperature of critiques, rewritten answers and scores if the turn would be greedy."""
    scorer: Scorer = NO_SCORER
    """Scorer of the answers; none: the policy scores them itself, from -100 to 100."""
    critique: str = CRITIQUE
    """Request for a critique of an answer."""
    improve: str = IMPROVE
    """Request for a better answer."""
    grade: str = (
        "Score your previous answer from -100 to 100, with strict standards and never above 95. Write only the score."
    )
    """Request for a score of an answer."""
    extra_tokens: Count = 512
    """Tokens in addition to prompt and episode that the engine needs room for: questions, critiques and answers."""

    @property
    def most_calls(self) -> int:
        """The first answer, and for each refinement a critique, an answer and two scores."""
        scores = 2 if self.scorer.name == "none" else 2 * self.scorer.calls
        return 1 + self.refinements * (2 + scores)

    def at_budget(self, answers: int) -> RefineTree:
        """Return the strategy with `answers` answers: the first, and refinements."""
        return replace(self, refinements=answers - 1)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: the scorer's model is not open.
        """
        roots = [RefinedAnswer(turn) for turn in policy.draft(requests, drawing)]
        sampling = not_greedy(drawing, self.temperature)
        points = [random.Random(request_of_call(request, CHOICE).seed) for request in requests]
        grown = [place for place, root in enumerate(roots) if root.turn.finished]
        for number in range(self.refinements):
            call = 1 + 4 * number
            selected = {place: self._selected(roots[place], points[place]) for place in grown}
            self._score(policy, requests, selected, sampling, call)
            rewritten = self._rewritten(policy, requests, selected, sampling, call + 1)
            self._score(policy, requests, rewritten, sampling, call + 3)
            for place, child in rewritten.items():
                selected[place].children.append(child)
                child.back_up()
        return [max(root, key=lambda node: node.value).turn for root in roots]

    def _selected(self, root: RefinedAnswer, points: random.Random) -> RefinedAnswer:
        candidates = [node for node in root if not node.is_full(self.children)]
        return chosen_node(candidates or [root], self.select, self.exploration, points)

    def _rewritten(
        self,
        policy: CountedPolicy,
        requests: Sequence[CompletionRequest],
        selected: dict[int, RefinedAnswer],
        sampling: TokenSampling,
        call: int,
    ) -> dict[int, RefinedAnswer]:
        """Return a new answer below each selected one, by place; those that did not end are missing."""
        criticised = {
            place: policy.extended(requests[place].prompt, node.turn.tokens, self.critique)
            for place, node in selected.items()
        }
        answers = improved_drafts(policy, requests, criticised, self.improve, sampling, call)
        return {place: RefinedAnswer(answer, selected[place]) for place, (_, answer) in answers.items()}

    def _score(
        self,
        policy: CountedPolicy,
        requests: Sequence[CompletionRequest],
        nodes: dict[int, RefinedAnswer],
        sampling: TokenSampling,
        call: int,
    ) -> None:
        """Add a score to each node. A scorer's value of an answer is always the same, so it is read once."""
        if self.scorer.name != "none":
            unread = {place: node for place, node in nodes.items() if not node.scores}
            values = policy.values(
                self.scorer,
                [requests[place].prompt for place in unread],
                [node.turn.tokens for node in unread.values()],
            )
            for node, value in zip(unread.values(), values, strict=True):
                node.add_score(value)
            for place, node in nodes.items():
                node.visits += place not in unread
            return
        questions = [
            request_of_call(
                requests[place], call, policy.extended(requests[place].prompt, node.turn.tokens, self.grade)
            )
            for place, node in nodes.items()
        ]
        texts = policy.texts(policy.answer(questions, sampling))
        for node, text in zip(nodes.values(), texts, strict=True):
            node.add_score(score_of(text))


def score_of(text: str) -> float:
    """Return the score that a text states, in [-100, 100]; a score above 95 loses 5, and an unreadable one is -100.

    The score is the marked answer, or the only number of the text. Several numbers, as in "80 out of 100", are
    unreadable.
    """
    stated = extract_answer(text, last_number=len(_NUMBER.findall(text)) == 1)
    try:
        score = float(stated) if stated is not None else LOWEST
    except ValueError:
        score = LOWEST
    score = score if LOWEST <= score <= HIGHEST else LOWEST
    return score - PENALTY if score > LIMIT else score
