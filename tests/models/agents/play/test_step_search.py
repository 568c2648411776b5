"""Trees of steps, with a policy of a few words, so that all answers can be enumerated."""

import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.agents.play.step_search import Estimate, StepSearch
from models.agents.play.tree import Backup, Growth, Node, SearchTree, Valuing
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling, TokenSampling
from models.method.problem import Problem
from tests.support.tiny_resources import CODEC

MARK = CODEC.inside([";"])[0][0]
WORDS = {word: CODEC.inside([word])[0][0] for word in ("1", "2", "3", "7", "8")}
CHANCE = {"1": 0.6, "2": 0.3, "3": 0.1}
"""Probabilities of the words in the first and in the second step. They determine the probability of the answer 7."""
PROBLEM = Problem("p", "1 +", "7", tokens=tuple(CODEC.prompts(["1 +"])[0]))
BACKUPS: tuple[Backup, Backup] = ("mean", "policy")
GROWTH = Growth(order="puct", candidates=4, nodes=24, goals=0, exploration=1.0, valuing=Valuing())


def chance_of_right(steps: Sequence[str]) -> float:
    """Return the probability of a right answer after two steps; small numbers have a higher one."""
    return 1 - (int(steps[0]) + 2 * int(steps[1])) / 10


def expectation(steps: Sequence[str]) -> float:
    """Return the probability of a right answer after up to two steps, by enumeration."""
    if len(steps) == 2:
        return chance_of_right(steps)
    return sum(chance * expectation([*steps, word]) for word, chance in CHANCE.items())


class Stepper(Engine):
    """An engine that writes two steps of one word each, and an answer of one word."""

    dtype = torch.float64
    vocabulary = 24

    def __init__(self) -> None:
        self.asked: list[CompletionRequest] = []

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        self.asked += requests
        return [self._drawn(ask) for ask in requests]

    def _drawn(self, ask: CompletionRequest) -> Generated:
        stands = [word for id in ask.prompt[len(PROBLEM.tokens) :] for word, own in WORDS.items() if own == id]
        tokens, chances = list[int](), list[float]()
        while len(tokens) < ask.max_tokens:
            point = _uniform(ask.seed, len(stands))
            if len(stands) < 2:
                word = "1" if point < 0.6 else "2" if point < 0.9 else "3"
                tokens, chances = [*tokens, WORDS[word], MARK], [*chances, CHANCE[word], 1.0]
                stands.append(word)
                if MARK in ask.stops:
                    return _generated(tokens, chances, ask.max_tokens)
            else:
                right = chance_of_right(stands)
                word = "7" if point < right else "8"
                tokens = [*tokens, *CODEC.completions([f"#### {word}"])[0]]
                chances += [1.0] * (len(tokens) - len(chances))
                return _generated(tokens, chances, ask.max_tokens)
        return _generated(tokens, chances, ask.max_tokens)

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        raise NotImplementedError

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return None


def _uniform(seed: int, place: int) -> float:
    return int.from_bytes(hashlib.sha256(f"{seed} {place}".encode()).digest()[:6], "big") / 2**48


def _generated(tokens: list[int], chances: list[float], room: int) -> Generated:
    log_probs = torch.tensor(chances[:room], dtype=torch.float64).log()
    return Generated(tuple(tokens[:room]), log_probs, len(tokens) <= room)


def grow(
    problems: int = 1,
    seed: int = 0,
    estimate: Estimate | None = None,
    share: float = 0.0,
    max_tokens: int = 20,
    engine: Stepper | None = None,
    **growth: object,
) -> list[SearchTree]:
    return StepSearch(
        engine=engine or Stepper(),
        codec=CODEC,
        sampling=Sampling(max_tokens=max_tokens),
        growth=replace(GROWTH, **growth),  # type: ignore[arg-type]
        marks=(";",),
        estimate=estimate,
        estimate_share=share,
    ).grow([PROBLEM] * problems, seed)


def words(node: Node) -> tuple[str, ...]:
    return tuple(passed.turn.text.split()[0] for passed in node.path)


def test_backed_up_values_are_the_enumerated_expectation_in_the_limit() -> None:
    """With the backup `policy`, each value is within four standard deviations of the probability that it estimates."""
    [tree] = grow(candidates=150, nodes=3000, valuing=Valuing(backup="policy"), seed=1)
    seen = 0
    for node in tree.root.below():
        if node.depth < 3 and node.visits >= 150:
            expected = expectation(words(node))
            value = node.value(tree.growth.valuing)
            assert value is not None and abs(value - expected) < 4 * math.sqrt(expected * (1 - expected) / 150)
            seen += 1
    assert seen >= 8


def test_the_search_goes_where_it_is_better_and_the_mean_with_it() -> None:
    """Over 60 trees, the mean backup is above the policy backup, which is close to the policy's enumerated value."""
    trees = grow(60, candidates=12, nodes=28, exploration=0.2, seed=2)
    means, policy = ([tree.root.value(Valuing(backup=backup)) or 0.0 for tree in trees] for backup in BACKUPS)
    assert sum(means) / 60 > sum(policy) / 60 + 0.01 and abs(sum(policy) / 60 - expectation([])) < 0.08


def test_the_best_of_a_tree_that_holds_all_is_the_enumerated_best() -> None:
    [tree] = grow(candidates=100, nodes=2000, seed=3)
    steps = {words(node) for node in tree.root.below() if node.depth == 2}
    assert steps == set(itertools.product(CHANCE, repeat=2))
    assert tree.root.value(Valuing(backup="best")) == 1.0
    failed = [node for node in tree.root.below() if node.over and node.turn.text == "#### 8"]
    assert failed and all(node.value(Valuing(backup="best")) == 0.0 for node in failed)


def test_the_bound_of_a_child_by_hand() -> None:
    tree = SearchTree(replace(GROWTH, candidates=2, exploration=2.0))
    a, b = (Node(tree.root, (number,), prior=prior) for number, prior in enumerate((0.5, 0.25)))
    tree.root.children, tree.root.drawn = [a, b], 2
    a.estimated(0.5)
    a.ended(1.0, True)
    a.ended(0.0, False)
    b.estimated(0.75)
    # 0.5 + 2 * 0.5 * sqrt(4) / 4 = 1.0 against 0.75 + 2 * 0.25 * sqrt(4) / 2 = 1.25
    assert [step.node for step in tree.next()] == [b] and a.visits == 3 and tree.root.total == 2.25
    b.prior = 0.1  # 0.75 + 2 * 0.1 * sqrt(4) / 2 = 0.95
    assert [step.node for step in tree.next()] == [a]


def test_with_estimates_alone_one_step_is_drawn_at_a_time_and_backed_up() -> None:
    engine = Stepper()

    def estimate(problems: Sequence[Problem], nodes: Sequence[Node]) -> list[float]:
        return [expectation(words(node)) for node in nodes]

    [tree] = grow(estimate=estimate, share=1.0, nodes=60, seed=4, engine=engine)
    assert all(MARK in ask.stops for ask in engine.asked)
    for node in tree.root.below():
        if node.depth in (1, 2) and not any(child.visits for child in node.children):
            assert node.visits == 1 and node.total == expectation(words(node))
        below = sum(child.total for child in node.children)
        own = expectation(words(node)) if node.depth in (1, 2) else 0.0
        assert node.over or math.isclose(node.total, below + own)
    assert any(node.over for node in tree.root.below())


def test_an_estimate_counts_beside_the_end_by_its_share() -> None:
    [tree] = grow(estimate=lambda problems, nodes: [0.2] * len(nodes), share=0.25, nodes=1, candidates=1, seed=0)
    [end] = [node for node in tree.root.below() if node.over]
    assert tree.root.total == 0.75 * float(end.turn.text == "#### 7") + 0.25 * 0.2 and tree.root.visits == 1


def test_what_is_cut_has_failed_whatever_it_says() -> None:
    [tree] = grow(max_tokens=5, nodes=8)
    ends = [node for node in tree.root.below() if node.over]
    assert ends and all(end.cut == "tokens" and end.failed and not end.finished for end in ends)
    assert all(len(end.history) == 5 for end in ends)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_same_seed_grows_the_same_trees_whatever_stands_beside(share: float) -> None:
    def grown(problems: int, seed: int) -> list[list[tuple[str, ...]]]:
        trees = grow(problems, seed, lambda problems, nodes: [0.5] * len(nodes), share)
        return [[words(node) for node in tree.root.below()] for tree in trees]

    assert grown(3, 5)[:2] == grown(2, 5) and grown(2, 5) != grown(2, 6)
