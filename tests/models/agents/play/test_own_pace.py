"""Episodes at their own pace: they have the same tokens as in waves, and none waits for another's environment."""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.agents.play.answers import in_time
from models.base.errors import UserError
from models.engines.engine import Engine, EngineSettings
from models.engines.fleet import Fleet
from models.engines.transformers_engine import TransformersEngine
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import Episodes
from tests.support.tiny_episodes import ENDING, Chatter, episodes, hang
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_models import NO_VLLM
from tests.support.tiny_resources import make_resources

SMALL = EngineSettings(max_sequences=5, precision="float32")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def engine(start: Path) -> Engine:
    return TransformersEngine(start, EngineSettings(precision="float32"), end=ENDING.ends)


def two(folder: Path) -> Engine:
    return Fleet([lambda: TransformersEngine(folder, SMALL, end=ENDING.ends)] * 2, torch.float32)


def draw(engine: Engine, source: Episodes) -> list[Rollout]:
    return source(make_resources(engine, codec=ENDING), PROBLEMS[:4], 0)


def assert_same(made: list[Rollout], expected: list[Rollout]) -> None:
    assert len(made) == len(expected) and max(len(rollout.episode.turns) for rollout in made) == 3
    for mine, theirs in zip(made, expected, strict=True):
        assert (mine.completion, mine.episode.cut, mine.text, mine.episode.solved) == (
            theirs.completion,
            theirs.episode.cut,
            theirs.text,
            theirs.episode.solved,
        )
        assert [turn._replace(seconds=0.0) for turn in mine.episode.turns] == [
            turn._replace(seconds=0.0) for turn in theirs.episode.turns
        ]
        torch.testing.assert_close(mine.behaviour_log_probs, theirs.behaviour_log_probs, rtol=0, atol=1e-5)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "make",
    [
        lambda folder: TransformersEngine(folder, EngineSettings(precision="float32"), end=ENDING.ends),
        lambda folder: TransformersEngine(folder, SMALL, end=ENDING.ends),
        two,
    ],
    ids=["room", "less_room_than_episodes", "two_engines"],
)
def test_each_at_its_own_pace_they_are_the_episodes_of_waves(start: Path, make: Callable[[Path], Engine]) -> None:
    engine = make(start)
    try:
        waves = draw(engine, episodes(Chatter(lasts=3, greeting="5 + 5")))
        assert_same(draw(engine, episodes(Chatter(lasts=3, greeting="5 + 5"), waves=False)), waves)
    finally:
        engine.close()


@NO_VLLM
@pytest.mark.slow
@pytest.mark.xdist_group("vllm")
@pytest.mark.rotating(of=8)
def test_vllm_plays_them_at_their_own_pace_as_in_waves(start: Path) -> None:
    from models.engines.vllm_engine import VllmEngine

    vllm = VllmEngine(start, EngineSettings(memory_share=0.1, precision="float32"), longest=64, end=ENDING.ends, seed=0)
    try:
        waves = draw(vllm, episodes(Chatter(lasts=3)))
        assert_same(draw(vllm, episodes(Chatter(lasts=3), waves=False)), waves)
    finally:
        vllm.close()


def test_an_environment_may_take_as_long_as_all_other_episodes_do(engine: Engine) -> None:
    """The first environment answers only after all other episodes have ended. In waves, that would never happen."""
    over, lock, calls, first = threading.Event(), threading.Lock(), 0, threading.Lock()
    left = 15

    def act(turn: str) -> None:
        nonlocal calls, left
        if first.acquire(blocking=False):
            assert over.wait(60)
        with lock:
            calls += 1
            left -= 1
            if not left:
                over.set()

    source = episodes(Chatter(lasts=1, act=act), waves=False, seconds=120.0, max_tokens=400)
    made = draw(engine, source)
    assert [rollout.episode.cut for rollout in made] == [""] * 16 and calls == 16


@pytest.mark.parametrize("waves", [True, False])
def test_off_the_main_thread_a_hanging_environment_ends_its_own_episode_alone(engine: Engine, waves: bool) -> None:
    calls, began, made = 0, time.monotonic(), []

    def stuck(turn: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            hang(turn)

    source = episodes(Chatter(lasts=2, act=stuck), seconds=0.2, max_tokens=40, waves=waves)
    thread = threading.Thread(target=lambda: made.extend(draw(engine, source)))
    thread.start()
    thread.join(50)
    assert time.monotonic() - began < 50
    cuts = [rollout.episode.cut for rollout in made]
    assert len(cuts) == 16 and cuts.count("time") == 1 and cuts.count("") > 8


def test_an_environment_that_fails_ends_its_own_episode_alone(engine: Engine) -> None:
    lock, calls = threading.Lock(), 0

    def break_down(turn: str) -> None:
        nonlocal calls
        with lock:
            calls += 1
            mine = calls
        if mine == 2:
            raise RuntimeError("no more")

    made = draw(engine, episodes(Chatter(lasts=2, act=break_down), waves=False, max_tokens=40))
    assert [rollout.episode.cut for rollout in made].count("error") == 1


@pytest.mark.parametrize("waves", [True, False])
@pytest.mark.parametrize("leaves", [lambda: sys.exit(0), lambda: os._exit(0), lambda: interrupt_itself()])
def test_an_environment_that_leaves_ends_its_own_episode_alone_and_changes_nothing_of_the_run(
    engine: Engine, leaves: Callable[[], None], waves: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lock, calls, here = threading.Lock(), 0, os.getcwd()

    def leave(turn: str) -> None:
        nonlocal calls
        os.chdir("/")
        with lock:
            calls += 1
            mine = calls
        if mine == 2:
            leaves()

    made = draw(engine, episodes(Chatter(lasts=2, act=leave), waves=waves, max_tokens=40))
    assert [rollout.episode.cut for rollout in made].count("error") == 1
    assert os.getcwd() == here
    assert f"({__file__}, line " in caplog.text


def interrupt_itself() -> None:
    raise KeyboardInterrupt


def test_an_answer_that_is_none_ends_its_own_episode_alone(engine: Engine) -> None:
    class Broken:
        def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
            return "", {}

        def step(self, turn: str) -> Any:
            return "no tuple"

        def close(self) -> None:
            return None

    @dataclass(frozen=True, kw_only=True)
    class Wrong(Chatter):
        def open(self, problem: Any) -> Any:
            return Broken() if problem.id == "p1" else super().open(problem)

    for waves in (True, False):
        made = draw(engine, episodes(Wrong(lasts=1), waves=waves, max_tokens=40))
        assert {rollout.episode.cut for rollout in made if rollout.problem.id == "p1"} <= {"error", "tokens"}
        assert "error" in {rollout.episode.cut for rollout in made}
        assert "error" not in {rollout.episode.cut for rollout in made if rollout.problem.id != "p1"}


def test_a_wrong_recipe_is_not_taken_for_an_environments_failure(engine: Engine) -> None:
    closed: list[int] = []

    def act(turn: str) -> None:
        raise UserError("enough")

    with pytest.raises(UserError, match="enough"):
        draw(engine, episodes(Chatter(act=act, closed=closed), waves=False))
    assert len(closed) == 16


def test_an_environment_that_must_not_be_asked_twice_at_once_is_not(engine: Engine) -> None:
    lock = threading.Lock()

    def alone(turn: str) -> None:
        assert lock.acquire(blocking=False), "somebody else is in it"
        time.sleep(0.002)
        lock.release()

    @dataclass(frozen=True, kw_only=True)
    class Single(Chatter):
        at_once = False

    made = draw(engine, episodes(Single(lasts=2, act=alone), waves=False))
    assert "error" not in {rollout.episode.cut for rollout in made}


def test_an_engine_that_cannot_take_up_a_turn_beside_others_is_refused(engine: Engine) -> None:
    engine.room = 0
    with pytest.raises(UserError, match=r"rollouts\.waves is false, but this engine cannot take up a turn"):
        draw(engine, episodes(Chatter(), waves=False))


def test_a_limit_of_seconds_holds_on_any_thread() -> None:
    seen: list[object] = []

    def work() -> None:
        seen.append(in_time(5.0, lambda: "in time", PROBLEMS))
        for call in (lambda: time.sleep(30), lambda: int("x")):
            try:
                in_time(0.05, call, PROBLEMS)
            except Exception as error:
                seen.append(type(error))

    for run in (lambda: threading.Thread(target=work), None):
        seen.clear()
        if run is None:
            work()
        else:
            thread = run()
            thread.start()
            thread.join(20)
        assert seen == ["in time", TimeoutError, ValueError]


def test_whole_settings_pass_waves_on_to_evaluations() -> None:
    assert episodes(Chatter(), waves=False).episodes.waves is False
    assert replace(episodes(Chatter()), waves=True).episodes.waves is True
