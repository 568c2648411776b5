"""A search's answers and steps as rollouts: values, groups, log-probs, and what critic and policy learn from them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.agents.play.tree import Growth, Node, SearchTree, Valuing
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutSource
from models.method.scored import Scored
from models.method.slots import Slots
from models.parts.advantage.reward import NoAdvantage
from models.parts.advantage.step_values import StepValues
from models.parts.objective.dpo import Dpo
from models.parts.objective.weighted_likelihood import WeightedLikelihood
from models.parts.reference.frozen import Frozen
from models.parts.rewards.episodes.source_value import SourceValue
from models.parts.rollouts.tree_search import TreeSearch, critic_estimates, qualities
from models.parts.select.everything import Everything
from models.parts.select.siblings import Siblings
from models.reward_models.critic.model import Critic, read_values
from tests.support.tiny_engines import Saying
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, Sevens, new_learner, run, same_weights, save_start
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

MARKS = ("+", "=", "7")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


def searched(**settings: Any) -> TreeSearch:
    given: dict[str, Any] = {"prompts": 4, "group_size": 3, "nodes": 8, "max_tokens": 8, "marks": MARKS}
    return TreeSearch(**{**given, **settings})


def draw(start: Path, source: TreeSearch, number: int = 0, learner: Learner | None = None) -> list[Rollout]:
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=CODEC.ends)
    return source(make_resources(engine, learner=learner), PROBLEMS[:4], number)


def with_critic(advantage: StepValues) -> tuple[Learner, Critic]:
    policy = tiny_policy(torch.float32, spread=3.0)
    torch.manual_seed(3)
    companion = advantage.accompany(policy)
    assert isinstance(companion.model, Critic)
    optimiser = build_optimiser(policy, OptimiserSettings())
    return Learner(
        policy, optimiser, None, None, None, MODEL_DISTRIBUTION, companions={"critic": companion}
    ), companion.model


def test_answers_are_whole_and_hold_a_value_where_a_step_begins(start: Path) -> None:
    made = draw(start, searched())
    assert len(made) == 4 * 8
    pieces = {word for rollout in made for word in rollout.text.split()}
    assert pieces & set(MARKS)
    for rollout in made:
        assert rollout.problem.tokens == PROBLEMS[rollout.group].tokens and len(rollout.completion) <= 8
        assert rollout.behaviour_log_probs is not None and len(rollout.behaviour_log_probs) == len(rollout.completion)
        words = CODEC.text([[token] for token in rollout.completion])
        begins = [True, *(word in MARKS for word in words[:-1])]
        assert [value is not None for value in rollout.source.step_values] == begins


def test_log_probs_of_an_answer_are_those_of_the_policy_that_drew_its_steps(start: Path) -> None:
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=CODEC.ends)
    for rollout in draw(start, searched()):
        [expected] = engine.score([rollout.problem.tokens], [rollout.completion])
        torch.testing.assert_close(rollout.behaviour_log_probs, torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_an_answer_counts_as_often_as_it_was_drawn() -> None:
    def say(words: list[str], seed: int) -> str:
        return "#### 7" if seed % 4 else "#### 3"

    problem = replace(PROBLEMS[0], answer="7")
    made = searched(nodes=32, group_size=32)(make_resources(Saying(CODEC, say)), [problem], 0)
    said = [rollout.text for rollout in made]
    assert len(said) == 32 and set(said) == {"#### 7", "#### 3"} and 16 < said.count("#### 7") < 32
    assert {rollout.source.value for rollout in made} == {0.0, 1.0} and len(set(map(id, made))) == 32


def test_steps_stand_behind_their_histories_and_siblings_make_a_group(start: Path) -> None:
    made = draw(start, searched(emit="steps"))
    assert any(rollout.episode.history for rollout in made) and all(
        rollout.source.value is not None for rollout in made
    )
    for rollout in made:
        assert {other.problem.tokens for other in made if other.group == rollout.group} == {rollout.problem.tokens}
        assert rollout.text == CODEC.text([rollout.completion])[0]


def test_a_critic_that_guides_alone_is_asked_for_the_state_behind_each_step(start: Path) -> None:
    learner, critic = with_critic(StepValues())
    torch.nn.init.constant_(critic.head.bias, 0.5)
    made = draw(start, searched(critic_share=1.0, emit="steps"), learner=learner)
    assert made
    node = Node(Node(), made[0].completion)
    [said] = critic_estimates(make_resources(learner=learner), [PROBLEMS[0]], [node])
    behind = (*PROBLEMS[0].tokens, *node.tokens)
    [row] = read_values(critic, Sequences([behind], [[CODEC.end]]))
    assert said == pytest.approx(float(row[0]), abs=1e-5) and 0 < said < 1


def test_qualities_by_hand() -> None:
    """The tree is root - a - right, root - b - wrong and root - c - d - right.

    The distances to a right answer are 1 and 0 on the first path and 2, 1 and 0 on the last. From b there is none.
    """
    tree = SearchTree(Growth(order="puct", candidates=3, nodes=9, goals=0, exploration=1.0, valuing=Valuing()))

    def child(parent: Node, worth: float | None = None) -> Node:
        made = Node(parent, (len(parent.children),), over=worth is not None)
        parent.children.append(made)
        if worth is not None:
            made.ended(worth, worth > 0)
        return made

    a, b, c = (child(tree.root) for _ in range(3))
    right, wrong, d = child(a, 1.0), child(b, 0.0), child(c)
    lost, far = child(a, 0.0), child(d, 1.0)
    known = qualities(tree)
    assert [known[id(node)] for node in (tree.root, a, right)] == [0.0, 0.5, 1.0]
    assert [known[id(node)] for node in (b, wrong)] == [0.0, 0.0]
    assert [known[id(node)] for node in (c, d, far)] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert known[id(lost)] == pytest.approx(0.5 - 0.5 / 2)  # its distance to a right answer is 1, like that of a
    none = SearchTree(tree.growth)
    child(child(none.root), 0.0)
    assert set(qualities(none).values()) == {0.0}


def two_answers() -> Scored:
    """Make two answers, one of them right, with values at two positions each."""
    rows = [(3, 4, 5, CODEC.end), (6, 4, CODEC.end)]
    values: Sequence[tuple[float | None, ...]] = [(0.5, None, 0.75, None), (0.5, 0.25, None)]
    rollouts = [
        Rollout(Problem("p", "", "7", tokens=(2, 3)), 0, ids, None, "", True, source=RolloutSource(step_values=known))
        for ids, known in zip(rows, values, strict=True)
    ]
    return Scored(rollouts, torch.tensor([1.0, 0.0]), {}, {})


@pytest.mark.rotating(of=6)
def test_right_answers_are_imitated_and_the_critic_learns_the_steps_values() -> None:
    advantage = StepValues()
    advantage = replace(advantage, critic=replace(advantage.critic, epochs=200))
    learner, critic = with_critic(advantage)
    resources, scored = make_resources(learner=learner), two_answers()
    signal = advantage(resources, scored)
    assert [row.tolist() for row in signal.tokens] == [[1.0] * 4, [0.0] * 3]
    advantage.learn(resources, scored, signal, 0)
    first, second = read_values(critic, scored.sequences)
    learned = torch.stack([first[0], first[2], second[0], second[1]])
    torch.testing.assert_close(learned, torch.tensor([0.5, 0.75, 0.5, 0.25]), atol=0.03, rtol=0)


def test_answers_without_values_teach_the_critic_nothing() -> None:
    advantage = StepValues()
    learner, critic = with_critic(advantage)
    before = critic.head.weight.clone()
    scored = two_answers()
    bare = replace(
        scored, rollouts=[replace(made, source=replace(made.source, step_values=())) for made in scored.rollouts]
    )
    resources = make_resources(learner=learner)
    assert advantage.learn(resources, bare, advantage(resources, bare), 0) == {} and torch.equal(
        before, critic.head.weight
    )


@pytest.mark.thorough
@pytest.mark.parametrize("guided", [True, False])
def test_a_run_that_was_killed_ends_with_the_same_weights(start: Path, tmp_path: Path, guided: bool) -> None:
    schedule = replace(SCHEDULE, rounds=4, epochs=1, minibatches=1)
    advantage = StepValues(threshold=0.05)
    if guided:
        slots = Slots(searched(critic_share=0.5), [Sevens()], [Everything()], advantage, WeightedLikelihood(), Frozen())
    else:
        slots = Slots(searched(emit="steps"), [SourceValue()], [Siblings()], NoAdvantage(), Dpo(), Frozen())

    def learner() -> Learner:
        made = new_learner(schedule)
        torch.manual_seed(5)
        return replace(made, companions={"critic": advantage.accompany(made.policy)} if guided else {})

    whole, _ = run(start, tmp_path / "whole", slots=slots, schedule=schedule, learner=learner())
    run(start, tmp_path / "killed", slots=slots, schedule=schedule, killed_in=3, learner=learner())
    resumed, diary = run(start, tmp_path / "killed", slots=slots, schedule=schedule, learner=learner())
    assert diary.resumed == [2] and same_weights(whole, resumed)
    if guided:
        assert not same_weights(whole, new_learner(schedule))
