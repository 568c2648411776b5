"""Pictures that an environment draws between the turns: tokens, log-probs of engine and learner, and memory."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from PIL import Image

from models.agents.environments.screen import ScreenEnvironment
from models.agents.play.play import play
from models.base.images import (
    ROUNDS_KEPT,
    begin_round_of_drawing,
    drawn_reference,
    known_content,
    reference_to,
    spans_of,
)
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.method.environment import Environment, EnvironmentEpisode, EpisodeSettings
from models.method.episode import EpisodeLimits
from models.method.memory import Memory, read, written
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode, trained_places
from models.parts.rewards.episodes.solved import reached_goal
from models.parts.rollouts.episodes import Episodes, as_rollout
from models.parts.rollouts.success_replay import SuccessReplay
from models.policies.folder import save_model_folder
from models.task_sets.scenes import painted, scene, squares_of
from models.text.encoding import Codec
from tests.support.device_here import placed
from tests.support.tiny_models import contents, gradients
from tests.support.tiny_resources import make_resources
from tests.support.tiny_vision import plain_log_probs, png, tiny_vision_policy

LIMITS = EpisodeLimits(turns=3, turn_tokens=4, seconds=10.0, at_last_turn="kept", when_stuck="masked")


def drawn_scene(random: Random) -> str:
    shapes = scene(random)
    return drawn_reference(png(painted(shapes, squares_of(shapes, random))))


class _Slides:
    def __init__(self, problem: Problem) -> None:
        self._random = Random(problem.id)

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self._random = Random(seed)
        return drawn_scene(self._random), {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"{drawn_scene(self._random)} how many", 0.0, False, False, {}

    def close(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Slides(Environment):
    """An environment that shows another picture before every turn."""

    name = "slides"

    def open(self, problem: Problem) -> EnvironmentEpisode:
        return _Slides(problem)


def test_log_probs_and_gradients_of_turns_are_those_of_each_turn_after_its_history(tmp_path: Path) -> None:
    model, codec = tiny_vision_policy()
    ending = Codec(codec.tokenizer, also_end=tuple(range(8, len(codec.tokenizer))))  # so that turns end
    save_model_folder(model.float(), codec.tokenizer, tmp_path / "policy")
    engine = TransformersEngine(tmp_path / "policy", EngineSettings(precision="float32"), end=ending.ends)
    prompt = f"{drawn_scene(Random(5))} what shape"
    problems = [Problem(f"p{number}", prompt, "1", tokens=tuple(codec.prompts([prompt])[0])) for number in range(2)]
    settings = EpisodeSettings(environment=Slides(), limits=LIMITS, role="user")
    groups = play(engine, ending, settings, problems, Sampling(max_tokens=60, samples=4, log_probs=True), seed=3)
    rollouts = [as_rollout(problems[0], 0, episode, LIMITS) for group in groups for episode in group]
    assert max(len(rollout.episode.turns) for rollout in rollouts) == 3
    assert len({span.name for rollout in rollouts for span in spans_of(rollout.completion)}) > 8
    model = model.double()
    kept = trained_places(rollouts)
    episodes = Sequences([rollout.problem.tokens for rollout in rollouts], [rollout.completion for rollout in rollouts])
    packed, _ = completion_log_probs(model, episodes, kept=kept)
    engines = torch.cat(
        [rollout.behaviour_log_probs for rollout in rollouts if rollout.behaviour_log_probs is not None]
    )
    torch.testing.assert_close(packed.detach().cpu().float(), engines[kept], atol=1e-4, rtol=0)
    weights = placed(torch.linspace(-1.0, 1.0, len(packed), dtype=torch.float64))
    (weights * packed).sum().backward()
    as_episodes = gradients(model)
    model.zero_grad()
    turns = [
        ((*rollout.problem.tokens, *rollout.completion[: turn.start]), rollout.completion[turn.start : turn.stop])
        for rollout in rollouts
        for turn in rollout.episode.turns
    ]
    alone = torch.cat([completion_log_probs(model, Sequences([before], [turn]))[0] for before, turn in turns])
    (weights * alone).sum().backward()
    torch.testing.assert_close(packed, alone, atol=1e-9, rtol=1e-9)
    for name, value in gradients(model).items():
        torch.testing.assert_close(as_episodes[name], value, atol=1e-8, rtol=1e-6, msg=name)


def test_a_turn_after_two_pictures_is_read_as_the_familys_processor_reads_it(tmp_path: Path) -> None:
    model, codec = tiny_vision_policy()
    first, second = (drawn_scene(Random(number)) for number in (1, 2))
    (prompt,), (between,), (answer,) = (
        codec.prompts([first]),
        codec.inside([second]),
        codec.completions(["blue square"]),
    )
    packed, _ = completion_log_probs(
        model, Sequences([prompt], [(*between, *answer)]), kept=torch.arange(len(between), len(between) + len(answer))
    )
    (plain,) = plain_log_probs(model, tmp_path / "policy", [(f"{first}{second}", "blue square")], codec)
    torch.testing.assert_close(packed, plain, atol=1e-9, rtol=1e-9)


SCREEN = reference_to(png(Image.new("RGB", (32, 32), (180, 220, 240))))
TASKS = [
    Problem(f"task {number}", f"{SCREEN} press red", json.dumps({"targets": [[number, 0, number + 4, 4]]}))
    for number in range(3)
]


@dataclass
class Remembering:
    """The part of a learner that the source uses."""

    memory: Memory = field(default_factory=list)


def a_round(number: int, solved: dict[str, bool]) -> list[Rollout]:
    """Return two episodes of each task with a picture drawn in this round; the second one may be a success."""
    made = []
    for group, task in enumerate(TASKS):
        for place in range(2):
            picture = drawn_reference(png(Image.new("RGB", (32, 32), (number, group, place))))
            _, codec = tiny_vision_policy()
            (ids,) = codec.inside([picture])
            won = place == 1 and solved.get(task.id, False)
            made.append(
                Rollout(
                    task, group, (3, *ids, 4), torch.full((len(ids) + 2,), -float(number + 1)), "", True,
                    episode=RolloutEpisode(solved=won),
                )
            )  # fmt: skip
    return made


def test_a_remembered_success_joins_a_group_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    source, rounds = SuccessReplay(prompts=3, group_size=2, environment=ScreenEnvironment()), iter(range(9))
    played = [{}, {"task 0": True, "task 1": True}, {"task 1": True}, {}]
    monkeypatch.setattr(Episodes, "__call__", lambda *_: a_round(number := next(rounds), played[number]))
    learner: Any = Remembering()
    resources = make_resources(learner=learner)
    assert not any(map(reached_goal, source(resources, TASKS, 0)))
    won = source(resources, TASKS, 1)
    assert [reached_goal(rollout) for rollout in won] == [False, True, False, True, False, False]
    third, fourth = source(resources, TASKS, 2), source(resources, TASKS, 3)
    for made, rounds_of in ((third, (1, 2)), (fourth, (1, 2))):
        assert [rollout.group for rollout in made] == [0, 0, 1, 1, 2, 2]
        assert [reached_goal(rollout) for rollout in made] == [False, True, False, True, False, False]
        successes = [rollout.behaviour_log_probs for rollout in made if reached_goal(rollout)]
        assert [float(-log_probs[0]) - 1 for log_probs in successes if log_probs is not None] == list(rounds_of)
    assert [rollout.problem.id for rollout in learner.memory[0]] == ["task 0", "task 1"]


def test_the_memory_keeps_the_latest_successes_and_their_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    source, rounds = SuccessReplay(remembered=1, environment=ScreenEnvironment()), iter(range(20, 60))
    played = {20: {"task 0": True, "task 2": True}}
    learner: Any = Remembering()

    def play_round(*_: Any) -> list[Rollout]:
        begin_round_of_drawing(rollout.completion for made in learner.memory for rollout in made)
        number = next(rounds)
        return a_round(number, played.get(number, {}))

    monkeypatch.setattr(Episodes, "__call__", play_round)
    for number in range(ROUNDS_KEPT + 2):
        made = source(make_resources(learner=learner), TASKS, number)
    assert [rollout.problem.id for rollout in learner.memory[0]] == ["task 2"]
    (span,) = spans_of(learner.memory[0][0].completion)
    assert made[5].completion == learner.memory[0][0].completion and known_content(span.name)
    stored, expected = written(learner.memory), contents(learner.memory)
    for _ in range(ROUNDS_KEPT):
        begin_round_of_drawing()
    assert known_content(span.name) is None
    assert contents(read(stored, TASKS)) == expected
    assert known_content(span.name) and written(read(stored, TASKS)) == stored
