"""Searched turns as rollouts: siblings form groups, and their loss is DPO with the history as prompt."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences, packed_row
from models.method.fit import Fit
from models.method.learner import Learner
from models.method.readings import Readings
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.slots import Slots
from models.parts.advantage.reward import NoAdvantage
from models.parts.objective.dpo import Dpo
from models.parts.reference.frozen import Frozen
from models.parts.rewards.episodes.source_value import SourceValue
from models.parts.rollouts.tree import Searched
from models.parts.select.siblings import Siblings
from tests.support.tiny_episodes import ENDING, Chatter
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, new_learner, run, same_weights, save_start
from tests.support.tiny_models import gradients, plain_log_probs, tiny_policy
from tests.support.tiny_resources import make_resources


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


def searched(**settings: Any) -> Searched:
    given: dict[str, Any] = {"prompts": 4, "group_size": 4, "turns": 3, "max_tokens": 48, "nodes": 40}
    return Searched(**{**given, "environment": Chatter(lasts=3), "worth": "rewards", **settings})


def draw(start: Path, source: Searched, number: int = 0) -> list[Rollout]:
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=ENDING.ends)
    return source(make_resources(engine, codec=ENDING), PROBLEMS[:4], number)


def scored_by_value(rollouts: Sequence[Rollout]) -> Scored:
    values = SourceValue()(make_resources(), rollouts)
    return Scored(rollouts, values, {"source_value": values}, {})


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("search", ["uct", "best", "breadth", "depth"])
def test_every_turn_stands_behind_its_history_and_siblings_make_a_group(start: Path, search: Any) -> None:
    made = draw(start, searched(search=search))
    whole = [(*rollout.problem.tokens, *rollout.completion) for rollout in made]
    roots = {problem.id: problem.tokens for problem in PROBLEMS}
    deep = [rollout for rollout in made if rollout.episode.history]
    assert deep and all(rollout.source.value is not None for rollout in made)
    for rollout in made:
        prompt = rollout.problem.tokens
        assert prompt[: len(prompt) - rollout.episode.history] == roots[rollout.problem.id]
        assert not rollout.episode.history or any(
            prompt[: len(ids)] == ids for ids in whole
        )  # the previous turn is a rollout too
        alike = {other.problem.tokens for other in made if other.group == rollout.group}
        assert alike == {prompt} and len(prompt) - len(roots[rollout.problem.id]) + len(rollout.completion) <= 48
    assert len({(rollout.group, rollout.completion) for rollout in made}) == len(made)
    shared = packed_row(scored_by_value(made).sequences)
    assert len(shared.ids) == len({ids[:end] for ids in whole for end in range(1, len(ids) + 1)})


@pytest.mark.rotating(of=6)
def test_step_dpo_in_the_tree_is_dpo_with_the_history_as_prompt(start: Path) -> None:
    scored = scored_by_value(draw(start, searched()))
    kept = Siblings()(scored)
    chosen = scored.take(kept)
    assert any(rollout.episode.history for rollout in chosen.rollouts) and len(kept) >= 6
    policy, reference = tiny_policy(seed=0, spread=3.0), tiny_policy(seed=1, spread=3.0).requires_grad_(False)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)
    readings = Readings(learner, 4096)
    fit = Fit(
        learner=learner,
        objective=Dpo(beta=0.3),
        chosen=chosen,
        advantage=list(NoAdvantage()(make_resources(), chosen).tokens),
        settings=SCHEDULE,
        readings=readings,
        longest=48,
        progress=0.0,
        old=None,
        reference=readings.reference(chosen.rollouts),
        marked=None,
    )
    fit.gradient(list(range(len(chosen.rollouts))), 400)
    in_trees = gradients(policy)
    policy.zero_grad()
    losses = []
    for better, worse in zip(chosen.rollouts[::2], chosen.rollouts[1::2], strict=True):
        assert better.problem.tokens == worse.problem.tokens and (better.source.value or 0) > (worse.source.value or 0)
        pair = Sequences([better.problem.tokens] * 2, [better.completion, worse.completion])
        own = torch.stack([row.sum() for row in plain_log_probs(policy, pair)])
        before = torch.stack([row.sum() for row in plain_log_probs(reference, pair)])
        ratio = own - before
        losses.append(-torch.nn.functional.logsigmoid(0.3 * (ratio[0] - ratio[1])))
    torch.stack(losses).mean().backward()
    expected = gradients(policy)
    assert max(float((in_trees[name] - expected[name]).abs().max()) for name in expected) <= 1e-12


def test_a_turn_whose_environment_broke_is_in_no_pair(start: Path) -> None:
    calls = 0

    def break_down(turn: str) -> None:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:
            raise RuntimeError("no more")

    scored = scored_by_value(draw(start, searched(environment=Chatter(lasts=2, act=break_down))))
    broken = [index for index, rollout in enumerate(scored.rollouts) if rollout.episode.cut == "error"]
    assert broken and not set(broken) & set(Siblings()(scored).tolist())
    assert all(scored.rollouts[index].trained_tokens == 0 for index in broken)


@pytest.mark.thorough
def test_a_run_that_was_killed_ends_with_the_same_weights(start: Path, tmp_path: Path) -> None:
    slots = Slots(searched(nodes=12), [SourceValue()], [Siblings()], NoAdvantage(), Dpo(), Frozen())
    schedule = replace(SCHEDULE, rounds=4, epochs=1, minibatches=1)
    whole, _ = run(start, tmp_path / "whole", slots=slots, schedule=schedule, codec=ENDING)
    run(start, tmp_path / "killed", slots=slots, schedule=schedule, codec=ENDING, killed_in=3)
    resumed, diary = run(start, tmp_path / "killed", slots=slots, schedule=schedule, codec=ENDING)
    assert diary.resumed == [2] and same_weights(whole, resumed)
    assert not same_weights(whole, new_learner(schedule))
