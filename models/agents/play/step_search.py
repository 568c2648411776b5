"""Tree search over the steps of completions: completions are drawn from a node, and their steps are new nodes.

    prompt | 7 + 5 = 12 ; | 12 - 3 = 9 ; | #### 9          a step ends with a token whose text holds a mark
                          | 12 - 3 = 8 ; | #### 8

A node is a step, and otherwise as in `models.agents.play.tree`. The worth of a new node comes from one of two sources,
or both:

    by its end        the completion is drawn to its end, which is right or wrong; all of its steps stay in the tree
    by an estimate    an estimator reads the steps so far and rates them; then one step is drawn at a time
    by both           (1 - a) end + a estimate of the first new step

An estimator of states does not read the last step of a completion, whose end is known. If it rates steps, as a reward
does, it reads the last step too (`estimate_ends`). Whether an end is right does not count then if a is 1.

The search of a problem depends on the policy, its number and the seed, not on the other problems of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from torch import Tensor

from models.agents.gateway.token_texts import stop_ids
from models.agents.play.tree import Expansion, Growth, Node, SearchTree
from models.answers.exact import is_right
from models.base.seeds import completion_seed
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.steps import step_starts
from models.text.encoding import Codec

Estimate = Callable[[Sequence[Problem], Sequence[Node]], list[float]]
"""Estimated worth of continuing from nodes, each in [0, 1], [nodes]; takes their problems and the nodes."""


@dataclass(frozen=True, kw_only=True)
class StepSearch:
    """A tree search over steps, with the settings that all trees of a round share."""

    engine: Engine
    codec: Codec
    sampling: Sampling
    """Sampling settings of the steps; `max_tokens` is the longest completion."""
    growth: Growth
    marks: tuple[str, ...]
    """A token whose text holds one of these ends a step."""
    estimate: Estimate | None = None
    estimate_share: float = 0.0
    """Weight of the estimate relative to the end (a), in [0, 1]; 1: no completion is drawn to its end."""
    estimate_ends: bool = False
    """Whether the estimator also rates the last step of a completion."""

    def grow(self, problems: Sequence[Problem], seed: int) -> list[SearchTree]:
        """Grow a tree for each problem, [problems]; the same seed gives the same trees."""
        trees = [SearchTree(self.growth) for _ in problems]
        while expansions := [(number, expansion) for number, tree in enumerate(trees) for expansion in tree.next()]:
            self._wave(problems, trees, expansions, seed)
        return trees

    @cached_property
    def _stops(self) -> tuple[int, ...]:
        """Stop ids of a draw, in addition to those that end a completion."""
        return () if self.estimate_share < 1 else stop_ids(self.codec, self.marks)

    def _wave(
        self,
        problems: Sequence[Problem],
        trees: Sequence[SearchTree],
        expansions: Sequence[tuple[int, Expansion]],
        seed: int,
    ) -> None:
        """Carry out all expansions that the trees request."""
        requests, numbers = [], [tree.drawn for tree in trees]
        for number, expansion in expansions:
            history = expansion.node.history
            prompt = (*problems[number].tokens, *history) if history else problems[number].tokens
            room = self.sampling.max_tokens - len(history)
            for _ in range(expansion.count):
                requests.append(
                    CompletionRequest(prompt, completion_seed(seed, number, numbers[number]), room, self._stops)
                )
                numbers[number] += 1
        completions = iter(self.engine.complete(requests, self.sampling))
        paths: list[tuple[Problem, Node, Node | None]] = []
        for number, expansion in expansions:
            for generated in islice(completions, expansion.count):
                paths.append((problems[number], *self._place(expansion.node, generated)))
        self._judge(paths)
        for number, expansion in expansions:
            trees[number].grown(expansion, [])

    def _place(self, parent: Node, generated: Generated) -> tuple[Node, Node | None]:
        """Add the steps that were drawn after `parent` to the tree. Returns the last one and the first new one."""
        node, first_new = parent, None
        for start, stop in self._steps(generated.tokens):
            if node is not parent:
                node.drawn += 1
            tokens = generated.tokens[start:stop]
            step_node = next((child for child in node.children if child.tokens == tokens), None)
            if step_node is not None:
                step_node.times += 1
            else:
                log_probs = None if generated.log_probs is None else generated.log_probs[start:stop]
                turn = Turn(0, len(tokens), text=self.codec.text([tokens])[0])
                step_node = Node(node, tokens, log_probs, turn, prior=_prior(log_probs))
                node.children.append(step_node)
                first_new = first_new or step_node
            node = step_node
        if first_new is not None and not self._can_continue(node):
            node.over, node.finished = True, node.tokens[-1] in self.codec.ends
            node.cut = "" if node.finished else "tokens"
        return node, first_new

    def _can_continue(self, node: Node) -> bool:
        ended = self.estimate_share < 1 or node.tokens[-1] in self.codec.ends
        return not ended and len(node.history) < self.sampling.max_tokens

    def _steps(self, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Return the start and stop of each step."""
        pieces = self.codec.text([[token] for token in tokens])
        starts = step_starts(pieces, self.marks).nonzero().flatten().tolist()
        return zip(starts, [*starts[1:], len(tokens)], strict=True)

    def _judge(self, paths: Sequence[tuple[Problem, Node, Node | None]]) -> None:
        """Add the worth of the drawn steps along their paths."""
        texts = self.codec.text([last.history if last.over else () for _, last, _ in paths])
        estimates = self._estimates(
            [(problem, new) for problem, _, new in paths if new is not None and (self.estimate_ends or not new.over)]
        )
        for (problem, last, new), text in zip(paths, texts, strict=True):
            estimate = estimates.get(id(new))
            if last.over and self.estimate_ends and self.estimate_share == 1:
                last.ended(last.total / last.visits if estimate is None else estimate, None)
            elif last.over:
                right = is_right(text, problem.answer, finished=last.finished)
                worth, share = float(right), 0.0 if estimate is None else self.estimate_share
                last.ended((1.0 - share) * worth + share * (estimate or 0.0), right)
            elif estimate is not None:
                last.estimated(estimate)

    def _estimates(self, problem_nodes: Sequence[tuple[Problem, Node]]) -> dict[int, float]:
        """Return the estimates of nodes, by their identity."""
        if self.estimate is None or not self.estimate_share or not problem_nodes:
            return {}
        estimates = self.estimate([problem for problem, _ in problem_nodes], [node for _, node in problem_nodes])
        return {id(node): value for (_, node), value in zip(problem_nodes, estimates, strict=True)}


def _prior(log_probs: Tensor | None) -> float:
    """Return the geometric mean of the tokens' probabilities, in [0, 1], which does not depend on a step's length."""
    return 1.0 if log_probs is None else math.exp(float(log_probs.mean()))
