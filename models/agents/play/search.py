"""Tree search over turns with an engine and environments: candidates are drawn, played and continued.

An environment has no snapshot. To continue from a node it is opened again with the same seed, and the turns that lead
to the node are played again. All episodes of a tree therefore have the same randomness in the environment, and
differences below a node come from the policy alone. Every repeated turn is checked: the environment must answer as
before, word for word, with the same reward and the same state. An environment whose answers differ cannot be searched,
and is refused. An environment that fails or hangs ends its own branch, which is left out if `when_stuck` masks it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from models.agents.play.answers import in_time
from models.agents.play.tree import Expansion, Growth, Node, SearchTree
from models.answers.exact import is_right
from models.base.errors import UserError, shortened
from models.base.finite import finite
from models.base.seeds import completion_seed, turn_seed
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling
from models.method.environment import EnvironmentEpisode, EpisodeSettings
from models.method.episode import Cut, Turn
from models.method.problem import Problem
from models.text.bridge import Bridge, bridge_of
from models.text.encoding import Codec

_LOG = logging.getLogger("rewardflow.episodes")

Worth = Callable[[Sequence[Turn], bool], float]
"""Worth of an episode from its turns and whether it reached the goal."""
Critique = Callable[[Sequence[Problem], Sequence[Node]], list[float]]
"""Critique of new nodes, each in [0, 1], [nodes]; takes their problems and the nodes."""
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Search:
    """A tree search over turns, with the settings that all trees of a round share."""

    engine: Engine
    codec: Codec
    episodes: EpisodeSettings
    sampling: Sampling
    """Sampling settings of the turns; `max_tokens` limits the whole episode, including the environment's words."""
    growth: Growth
    worth: Worth
    critique: Critique | None = None

    def grow(
        self, problems: Sequence[Problem], seed: int, prior_weights: Sequence[float] | None = None
    ) -> list[SearchTree]:
        """Grow a tree for each problem, [problems]; the same seed gives the same trees.

        Args:
            problems: problems of the trees.
            seed: seed of the turns.
            prior_weights: weight of the policy's prior in each tree, in [0, 1], [problems]; None: zero.

        Raises:
            UserError: a problem does not belong to this environment, the environment does not answer the same turns in
                the same way, or the chat template cannot be continued.
        """
        turns = self.episodes.limits.turns
        bridge = bridge_of(self.codec, self.episodes.role) if turns > 1 else None
        weights = prior_weights or [0.0] * len(problems)
        trees = [SearchTree(self.growth, prior_weight=weight) for weight in weights]
        for number, (problem, tree) in enumerate(zip(problems, trees, strict=True)):
            self._begin(problem, tree.root, completion_seed(seed, number, 0))
        while expansions := [(number, expansion) for number, tree in enumerate(trees) for expansion in tree.next()]:
            self._wave(problems, trees, expansions, bridge, seed)
        return trees

    def _wave(
        self,
        problems: Sequence[Problem],
        trees: Sequence[SearchTree],
        expansions: Sequence[tuple[int, Expansion]],
        bridge: Bridge | None,
        seed: int,
    ) -> None:
        """Carry out all expansions that the trees request."""
        limits, longest = self.episodes.limits, self.sampling.max_tokens
        requests, numbers = [], [tree.drawn for tree in trees]
        for number, expansion in expansions:
            history = expansion.node.history
            prompt = (*problems[number].tokens, *history) if history else problems[number].tokens
            room = min(limits.turn_tokens or longest, longest - len(history))
            for _ in range(expansion.count):
                requests.append(CompletionRequest(prompt, completion_seed(seed, number, numbers[number]), room))
                numbers[number] += 1
        completions = self.engine.complete(requests, self.sampling)
        completions_and_texts = iter(
            zip(completions, self.codec.text([generated.tokens for generated in completions]), strict=True)
        )
        new_nodes: list[tuple[Problem, Node]] = []
        for number, expansion in expansions:
            parent, problem = expansion.node, problems[number]
            node_of = {child.tokens: child for child in parent.children}
            for generated, text in islice(completions_and_texts, expansion.count):
                if generated.tokens in node_of:
                    node_of[generated.tokens].again()
                    continue
                node = self._play_turn(problem, parent, generated, text, completion_seed(seed, number, 0), bridge)
                node_of[generated.tokens] = node
                parent.children.append(node)
                new_nodes.append((problem, node))
        if self.critique is not None and new_nodes:
            critiques = self.critique([problem for problem, _ in new_nodes], [node for _, node in new_nodes])
            for (_, node), critique in zip(new_nodes, critiques, strict=True):
                node.critique = critique
        new_identities = {id(node) for _, node in new_nodes}
        for number, expansion in expansions:
            trees[number].grown(expansion, [child for child in expansion.node.children if id(child) in new_identities])

    def _begin(self, problem: Problem, root: Node, seed: int) -> None:
        """Note the environment's text before the first turn."""
        name = self.episodes.environment.name
        try:
            with closing(self.episodes.environment.open(problem)) as episode:
                text, info = self._in_time(lambda: episode.reset(turn_seed(seed, -1)))
        except (UserError, MemoryError):
            raise
        except Exception as error:  # an environment may raise any exception
            raise UserError(
                f"environment {name}: an episode could not begin ({type(error).__name__}: {shortened(str(error), 200)})"
            ) from error
        root.state, root.turn = str(info.get("state", "")), Turn(0, 0, response=text)
        if text:
            root.response_ids = tuple(self.codec.inside([f"\n{text}\n"])[0])
            if len(root.response_ids) >= self.sampling.max_tokens:
                raise UserError(
                    f"rollouts.max_tokens is {self.sampling.max_tokens}, but environment {name} begins with "
                    f"{len(root.response_ids)} tokens; raise it"
                )

    def _play_turn(
        self, problem: Problem, parent: Node, generated: Generated, text: str, seed: int, bridge: Bridge | None
    ) -> Node:
        """Return the node that a turn leads to."""
        turn = Turn(0, len(generated.tokens), state=parent.state, text=text)
        prior = 1.0 if generated.log_probs is None else math.exp(float(generated.log_probs.sum()))
        node = Node(parent, generated.tokens, generated.log_probs, turn, prior=prior)
        if not generated.finished:  # half a turn is not answered
            return self._end_episode(problem, node, "tokens")
        try:
            with closing(self.episodes.environment.open(problem)) as episode:
                self._replay_path(episode, parent, seed)
                began = time.perf_counter()
                response, reward, terminated, truncated, info = self._in_time(lambda: episode.step(text))
                seconds = time.perf_counter() - began
            duration = finite(info.get("duration", 0.0))
            node.turn = turn._replace(reward=finite(reward), seconds=seconds, response=response, duration=duration)
        except TimeoutError:
            return self._end_episode(problem, node, "time")
        except (UserError, MemoryError):
            raise
        except Exception as error:  # an environment may raise any exception
            _LOG.warning("an environment failed, and with it one branch (%s: %s)", type(error).__name__, error)
            return self._end_episode(problem, node, "error")
        node.state = str(info.get("state", ""))
        solved = bool(info["solved"]) if "solved" in info else None
        if terminated or truncated:
            return self._end_episode(problem, node, "", solved)
        if bridge is None or node.depth == self.episodes.limits.turns:
            return self._end_episode(problem, node, "turns", solved)
        ids = tuple(bridge.ids([response])[0])
        if len(parent.history) + len(node.tokens) + len(ids) >= self.sampling.max_tokens:
            return self._end_episode(problem, node, "tokens", solved)
        node.response_ids = ids
        return node

    def _replay_path(self, episode: EnvironmentEpisode, node: Node, seed: int) -> None:
        """Replay the turns up to a node in a newly opened environment.

        Raises:
            UserError: it does not answer as before.
        """
        root = node.path[0].parent if node.path else node
        assert root is not None, "the first turn of a path was taken at the root"
        text, info = self._in_time(lambda: episode.reset(turn_seed(seed, -1)))
        same = (text, str(info.get("state", ""))) == (root.turn.response, root.state)
        for number, path_node in enumerate(node.path, start=1):
            response, reward, terminated, truncated, info = self._in_time(lambda: episode.step(path_node.turn.text))  # noqa: B023
            answer = (response, finite(reward), str(info.get("state", "")))
            if (
                not same
                or answer != (path_node.turn.response, path_node.turn.reward, path_node.state)
                or terminated
                or truncated
            ):
                raise UserError(
                    f"environment {self.episodes.environment.name} cannot be searched: opened again with the same seed "
                    f"it answered turn {number} otherwise than before, {shortened(response, 80)!r} instead of "
                    f"{shortened(path_node.turn.response, 80)!r}"
                )

    def _in_time(self, call: Callable[[], Result]) -> Result:
        return in_time(self.episodes.limits.seconds, call, self.episodes.environment)

    def _end_episode(self, problem: Problem, node: Node, cut: Cut, reported_solved: bool | None = None) -> Node:
        """End the episode of a node, and add its worth along its path."""
        rule = self.episodes.limits.rule(cut)
        node.over, node.cut, node.finished, node.masked = True, cut, rule == "kept", rule == "masked"
        if node.masked:
            return node
        turns = [path_node.turn for path_node in node.path]
        solved = reported_solved and node.finished
        if reported_solved is None and problem.answer:
            solved = is_right("\n".join(turn.text for turn in turns), problem.answer, finished=node.finished)
        node.ended(self.worth(turns, bool(solved)), solved)
        return node
