"""Environments of verifiers in a process of another interpreter: what is trained on, versions, and faults."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from models.agents.environments.verifiers import Verifiers, host_for, installed_versions, tasks_of
from models.agents.foreign import process
from models.agents.play.play import play
from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import Episodes
from tests.support.agent_programs import trained
from tests.support.other_interpreter import other_interpreter
from tests.support.tiny_episodes import ENDING, Listening, gap
from tests.support.tiny_loops import save_start
from tests.support.tiny_resources import CODEC, make_resources

TOKENS = CODEC.prompts(["3 + 4 = "])[0]
PROBLEMS = [Problem(f"p{task}", "3 + 4 = ", f'{{"task": {task}}}', tokens=tuple(TOKENS)) for task in (0, 1)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def engine(start: Path) -> Listening:
    return Listening(start, EngineSettings(precision="float32"), end=ENDING.ends)


@pytest.fixture
def python(tmp_path: Path) -> str:
    return other_interpreter(tmp_path / "other")


def rollouts(python: str, seconds: float = 30.0, **arguments: Any) -> Episodes:
    return Episodes(
        environment=Verifiers(id="talk", python=python, arguments=arguments),
        prompts=2, group_size=2, turns=4, turn_tokens=16, max_tokens=96, seconds=seconds,
    )  # fmt: skip


def draw(engine: Listening, source: Episodes) -> list[Rollout]:
    return source(make_resources(engine, codec=ENDING), PROBLEMS, 0)


def test_an_episode_is_the_conversation_of_the_environment_and_its_reward(engine: Listening, python: str) -> None:
    made = draw(engine, rollouts(python))
    drawn = {(tuple(ask.prompt), generated.tokens) for ask, generated in engine.asked}
    assert all(call in drawn for rollout in made for call in trained(rollout))
    assert gap(made) <= 1e-5 and [rollout.group for rollout in made] == [0, 0, 1, 1]
    whole = [rollout for rollout in made if not rollout.episode.cut]
    assert whole and all(rollout.episode.cut in ("", "tokens") for rollout in made)
    for rollout in whole:
        last = rollout.episode.turns[-1]
        assert len(rollout.episode.turns) == 2 and last.reward == 0.5 + len(last.text) % 2
        assert rollout.episode.solved == (last.reward >= 1.0) and rollout.trained_tokens == rollout.written_tokens
    for rollout in made:
        assert rollout.problem.tokens == tuple(ENDING.prompts([{"p0": "3 + 4", "p1": "5 + 1"}[rollout.problem.id]])[0])


def test_episodes_of_a_seed_are_the_same_in_every_process(engine: Listening, python: str) -> None:
    source = rollouts(python)
    first = draw(engine, source)
    process.host_of.cache_clear()
    assert [rollout.completion for rollout in draw(engine, source)] == [rollout.completion for rollout in first]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("crash", "its process was lost (it ended with status 3: it broke)"),
        ("raise", "ValueError: no such move"),
        ("error", "RolloutError: it failed"),
    ],
)
def test_an_episode_that_fails_ends_alone_with_a_line(
    engine: Listening, python: str, mode: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = rollouts(python, mode=mode)
    made = draw(engine, source)
    failed = [rollout for rollout in made if rollout.problem.id == "p1"]
    assert {rollout.episode.cut for rollout in failed} == {"error"}
    assert all(rollout.trained_tokens == 0 for rollout in failed)
    assert reason in caplog.text
    if mode != "crash":
        assert "error" not in {rollout.episode.cut for rollout in made if rollout.problem.id == "p0"}
    assert len(draw(engine, source)) == 4, "the next round starts the process again, if it was lost"


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("mode", ["wait", "hang"])
def test_an_episode_that_takes_too_long_is_cut(
    engine: Listening, python: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TO_STOP", 0.3)
    source, began = rollouts(python, 1.5, mode=mode), time.monotonic()
    source.try_out()
    made = draw(engine, source)
    assert {rollout.episode.cut for rollout in made if rollout.problem.id == "p1"} == {"time"}
    assert time.monotonic() - began < 20
    if mode == "hang":
        time.sleep(0.6)
        assert len(draw(engine, source)) == 4, "a process that hangs is ended, and started again"


def test_versions_are_part_of_the_recipe_and_are_checked(python: str) -> None:
    assert Verifiers(id="OWNER/talk", python=python).packages == ("talk==2.0", "verifiers==0.1.14")
    assert installed_versions("/no/such/python", "talk") == ()
    with pytest.raises(UserError, match=r"packages: talk==1\.0 is wanted, but .* has 2\.0; install"):
        Verifiers(id="talk", python=python, packages=("talk==1.0",)).try_out()


def test_the_tasks_of_an_environment_become_problems_with_different_prompts(python: str) -> None:
    problems = tasks_of(Verifiers(id="talk", python=python), 2)
    assert [(problem.prompt, problem.answer) for problem in problems] == [
        ("3 + 4", '{"task": 0}'), ("5 + 1", '{"task": 1}'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"id": ""}, r"environment\.id: verifiers needs the id"),
        ({"python": "/no/such/python"}, r"environment\.python: /no/such/python: no such program"),
        ({"id": "other"}, r"environment verifiers, other: ValueError: Could not import 'other' environment"),
        ({"arguments": {"colour": 1}}, r"talk: TypeError: .*unexpected keyword argument 'colour'"),
        (
            {"arguments": {"mode": "garble"}},
            r"its process was lost \(it wrote something that is not an answer: not",
        ),
    ],
)
def test_an_environment_that_cannot_be_loaded_is_one_line(python: str, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line) as raised:
        Verifiers(**{"id": "talk", "python": python, **settings}).try_out()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("package", "line"),
    [("", "this interpreter has no package verifiers"), ("import os; os._exit(4)", "it ended with status 4")],
)
def test_an_interpreter_without_a_working_package_is_one_line(tmp_path: Path, package: str, line: str) -> None:
    python = other_interpreter(tmp_path / "empty", package)
    with pytest.raises(UserError, match=line):
        Verifiers(id="talk", python=python).try_out()


def test_a_task_that_does_not_exist_or_is_none_is_one_line(engine: Listening, python: str) -> None:
    source = rollouts(python)
    resources = make_resources(engine, codec=ENDING)
    for answer, line in (
        ('{"task": 9}', "an episode could not begin .task 9 does not exist"),
        ("7", "answer"),
    ):
        with pytest.raises(UserError, match=line):
            source(resources, [Problem("p", "3 + 4 = ", answer, tokens=tuple(TOKENS))], 0)


def test_the_process_ends_with_ours(engine: Listening, python: str) -> None:
    source = rollouts(python)
    play(engine, ENDING, source.episodes, PROBLEMS[:1], source.sampling, 3)
    assert isinstance(source.environment, Verifiers)
    running = host_for(source.environment)._process
    assert running is not None and running.popen.stdin is not None
    pid = running.popen.pid
    running.popen.stdin.close()
    running.popen.wait(10)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
