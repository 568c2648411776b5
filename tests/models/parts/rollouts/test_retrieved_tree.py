"""Rollouts `retrieved_tree`: the weight of the prior by hand, its limits, and similarity by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from models.agents.environments.synthesis import Synthesis
from models.agents.play.tree import Growth, Node, SearchTree, Valuing
from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rollouts.retrieved_tree import RetrievedTree, similarity
from models.parts.rollouts.tree import Searched
from tests.support.tiny_episodes import ENDING, Chatter
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_resources import make_resources


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def known(tmp_path: Path) -> Path:
    file = tmp_path / "known.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": text}) for text in ("a and b", "a or not b")) + "\n")
    return file


def tree_of(weight: float, priors: list[float]) -> SearchTree:
    growth = Growth(order="uct", candidates=len(priors), nodes=99, goals=0, exploration=1.0, valuing=Valuing())
    tree = SearchTree(growth, prior_weight=weight)
    for prior in priors:
        child = Node(tree.root, prior=prior)
        tree.root.children.append(child)
        child.ended(0.5, None)
    tree.root.drawn = tree.drawn = len(priors)
    return tree


def test_the_bound_by_hand() -> None:
    tree = tree_of(0.5, [0.1, 0.3])
    first, second = (tree._upper_bound(child) for child in tree.root.children)
    spread = math.sqrt(math.log(2) / 2)
    assert first == pytest.approx(0.5 + spread * math.sqrt(0.5))
    assert second == pytest.approx(0.5 + spread * math.sqrt(1.5))


def test_without_weight_and_with_equal_priors_the_bound_is_that_of_uct() -> None:
    plain = [tree_of(0.0, [1.0, 1.0])._upper_bound(child) for child in tree_of(0.0, [1.0, 1.0]).root.children]
    for weight, priors in ((0.0, [0.01, 0.9]), (1.0, [0.2, 0.2])):
        tree = tree_of(weight, priors)
        assert [tree._upper_bound(child) for child in tree.root.children] == plain


def test_a_known_problem_follows_the_policy_and_a_novel_one_the_search(known: Path) -> None:
    part = RetrievedTree(known=str(known), environment=Synthesis(), turns=4)
    like, novel = part._prior_weights([Problem("p", "a and b", ""), Problem("q", "x1~x2~x3", "")])
    assert like == pytest.approx(1.0, abs=1e-4) and novel == pytest.approx(0.0, abs=1e-4)
    assert part._weight(part.near_from) == 0.5


def test_similarity_by_hand() -> None:
    assert similarity("abcd", ["abcd"]) == pytest.approx(1.0)
    assert similarity("abcd", ["abce", "zzz"]) == pytest.approx(0.5)  # abc of abc, bcd and abc, bce
    assert similarity("abcd", ["wxyz"]) == similarity("abcd", []) == 0.0


def test_with_weight_zero_the_rollouts_are_those_of_the_plain_tree(start: Path, known: Path) -> None:
    settings: dict[str, Any] = {"prompts": 2, "group_size": 3, "turns": 3, "max_tokens": 48, "nodes": 18}
    settings |= {"environment": Chatter(lasts=3), "worth": "rewards"}

    def drawn(source: Searched) -> list[Rollout]:
        engine = TransformersEngine(start, EngineSettings(precision="float32"), end=ENDING.ends)
        return source(make_resources(engine, codec=ENDING), PROBLEMS[:2], 0)

    plain = drawn(Searched(**settings))
    same = drawn(RetrievedTree(**settings, known=str(known), near_from=1.0, temperature_of_weight=0.001))
    assert [(each.completion, each.source.value) for each in same] == [
        (each.completion, each.source.value) for each in plain
    ]
    full = drawn(RetrievedTree(**settings, known=str(known), near_from=0.0, temperature_of_weight=0.001))
    assert len(full) > 0


@pytest.mark.parametrize(
    ("text", "line"),
    [("", "has no rows"), ('{"prompt": ""}\n', "line 1: it has no prompt"), ("{\n", "line 1: ")],
)
def test_a_file_without_prompts_is_refused_in_a_line(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "known.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match=f"rollouts.known: .*{line}"):
        RetrievedTree(known=str(file), environment=Synthesis()).try_out()


def test_no_file_and_another_order_are_refused_in_a_line(known: Path) -> None:
    with pytest.raises(UserError, match=r"rollouts\.known: name the JSONL file"):
        RetrievedTree(environment=Synthesis()).try_out()
    with pytest.raises(UserError, match=r"rollouts\.search: best has no bound that a prior could weigh; set uct"):
        RetrievedTree(known=str(known), environment=Synthesis(), search="best")
