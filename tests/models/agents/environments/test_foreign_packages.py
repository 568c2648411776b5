"""Real packages of verifiers and OpenEnv, each in an interpreter of its own, from the first message to the reward.

The interpreters are named by variables; docs/episodes.md has the commands that make them from their locks.
"""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from models.agents.environments.openenv import OpenEnv
from models.agents.environments.verifiers import Verifiers, tasks_of
from models.base.errors import UserError
from models.base.http_answers import answer_here
from models.engines.engine import EngineSettings
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import Episodes
from tests.support.agent_programs import trained
from tests.support.tiny_episodes import ENDING, Listening, gap
from tests.support.tiny_loops import save_start
from tests.support.tiny_resources import CODEC, make_resources

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
GUIDE = (Path(__file__).resolve().parents[4] / "docs" / "episodes.md").read_text()
TASK_SET = """
import verifiers.v1 as vf


class Digits(vf.Task[vf.TaskData]):
    @vf.reward
    async def digits(self, trace: vf.Trace) -> float:
        return sum(character.isdigit() for character in trace.last_reply or "") / max(1, len(trace.last_reply or ""))


class DigitTasks(vf.Taskset[Digits, vf.TasksetConfig]):
    def load(self):
        for text in ("3 + 4", "5 + 1"):
            yield Digits(vf.TaskData(prompt=text), self.config.task)


__all__ = ["DigitTasks"]
"""
SERVER = """
import sys

import uvicorn
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    message: str


class Heard(Observation):
    text: str = ""


class Digits(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **parameters):
        self._state = State()
        return Heard(text=f"{(seed or 0) % 10} + 1")

    def step(self, action):
        self._state.step_count += 1
        digits = sum(map(str.isdigit, action.message))
        return Heard(text="7", reward=digits / max(1, len(action.message)), done=self._state.step_count == 2)

    @property
    def state(self):
        return self._state


uvicorn.run(create_app(Digits, Say, Heard, max_concurrent_envs=64), host="127.0.0.1", port=int(sys.argv[1]))
"""


def interpreter(variable: str, lock: str) -> str:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no interpreter with {lock}; docs/episodes.md has the command that makes it")
    return python


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


def draw(start: Path, source: Episodes, problems: list[Problem]) -> list[Rollout]:
    """Play two episodes of each problem, and check that what is trained on is what was drawn."""
    engine = Listening(start, EngineSettings(precision="float32"), end=ENDING.ends)
    tokens = tuple(CODEC.prompts(["3 + 4 " * 40])[0])  # the room of a conversation begins with the problem's prompt
    made = source(make_resources(engine, codec=ENDING), [replace(problem, tokens=tokens) for problem in problems], 0)
    drawn = {(tuple(ask.prompt), generated.tokens) for ask, generated in engine.asked}
    assert all(call in drawn for rollout in made for call in trained(rollout)) and gap(made) <= 1e-5
    return made


def episodes(environment: Verifiers | OpenEnv, turns: int) -> Episodes:
    return Episodes(
        environment=environment, prompts=2, group_size=2, turns=turns, turn_tokens=16, max_tokens=96, seconds=60.0
    )


SCORED = """
import json, sys
from stardata.envs.constraint_gym import build_dataset, prosody_reward
info = build_dataset(["haiku"], 1)[0]["info"]
print(json.dumps([prosody_reward(text, info=info) for text in json.load(sys.stdin)]))
"""


def test_poems_of_a_package_of_verifiers_are_rewarded_by_its_rubric(start: Path, tmp_path: Path) -> None:
    """The module of the guide adapts the package, so that the reward is that of the poem alone."""
    python = interpreter("REWARDFLOW_VERIFIERS_PYTHON", "verifiers.lock")
    whole = Verifiers(id="stardata.envs.constraint_gym", python=python)
    assert whole.packages == ("staros-stardata==0.1.1", "verifiers==0.1.14")
    (module,) = re.findall(r"```python\n(# haiku\.py\n.*?)```", GUIDE, flags=re.DOTALL)
    (tmp_path / "haiku.py").write_text(module)
    environment = Verifiers(
        id="haiku", python=with_modules(python, tmp_path), packages=whole.packages, arguments={"forms": ["haiku"]}
    )
    problems = tasks_of(environment, 2)
    assert "exactly 3 lines with exactly 5, 7, and 5 syllables" in problems[0].prompt
    made = draw(start, episodes(environment, 1), problems)
    texts = [rollout.episode.turns[-1].text for rollout in made]
    scored = subprocess.run([python, "-c", SCORED], input=json.dumps(texts), capture_output=True, text=True, check=True)
    assert [rollout.episode.turns[-1].reward for rollout in made] == pytest.approx(json.loads(scored.stdout))
    with pytest.raises(UserError, match="Could not import 'no-such-environment' environment"):
        Verifiers(id="no-such-environment", python=python).try_out()
    with pytest.raises(UserError, match=r"staros-stardata==9 is wanted, but .* has 0\.1\.1"):
        replace(environment, packages=("staros-stardata==9",)).try_out()


def with_modules(python: str, folder: Path) -> str:
    """Write a program that runs an interpreter which also finds the modules of a folder, and return its path."""
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{python}" "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def test_a_task_set_of_the_latest_verifiers_is_played_without_a_download(start: Path, tmp_path: Path) -> None:
    python = interpreter("REWARDFLOW_NEW_VERIFIERS_PYTHON", "verifiers 0.4.0")
    (tmp_path / "digit_tasks.py").write_text(TASK_SET)
    environment = Verifiers(id="digit-tasks", python=with_modules(python, tmp_path))
    made = draw(start, episodes(environment, 2), tasks_of(environment, 2))
    for rollout in made:
        text = rollout.episode.turns[-1].text
        digits = sum(character.isdigit() for character in text) / max(1, len(text))
        assert rollout.episode.turns[-1].reward == pytest.approx(digits)


@contextmanager
def serving(*command: str, path: Path, **variables: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    words = [port if word == "PORT" else word for word in command]
    with (path / "server.log").open("wb") as log:
        settings = {**os.environ, **variables, "PORT": port}
        server = subprocess.Popen(words, stdout=log, stderr=log, env=settings, cwd=path)
    try:
        limit = time.monotonic() + 600
        while answer_here(f"http://127.0.0.1:{port}/health") is None:
            assert time.monotonic() < limit and server.poll() is None, (path / "server.log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def test_episodes_of_the_real_openenv_have_sessions_seeds_and_rewards_of_their_own(start: Path, tmp_path: Path) -> None:
    python = interpreter("REWARDFLOW_OPENENV_PYTHON", "openenv.lock")
    (tmp_path / "server.py").write_text(SERVER)
    with serving(python, str(tmp_path / "server.py"), "PORT", path=tmp_path) as url:
        problems = [Problem(f"p{seed}", "3 + 4 = ", f'{{"seed": {seed}}}') for seed in (3, 5)]
        made = draw(start, episodes(OpenEnv(url=url), 3), problems)
        for rollout in made:
            for turn in rollout.episode.turns[: 1 if rollout.episode.cut else 2]:
                if turn.response:
                    assert turn.reward == pytest.approx(sum(map(str.isdigit, turn.text)) / max(1, len(turn.text)))
        assert any(rollout.episode.turns[0].response == "7" for rollout in made)
        opened = OpenEnv(url=url).open(problems[0])
        assert opened.reset(0) == ("3 + 1", {})
        opened.close()


def test_a_package_of_openenv_scores_the_turns_of_many_sessions_by_the_script_of_the_guide(tmp_path: Path) -> None:
    python = interpreter("REWARDFLOW_OPENENV_PYTHON", "openenv.lock")
    (script,) = re.findall(r"```python\n(# serve_questions\.py\n.*?)```", GUIDE, flags=re.DOTALL)
    (tmp_path / "serve_questions.py").write_text(script)
    right = "The context does not contain this information."
    rows = [
        {
            "messages": [
                {
                    "role": "user",
                    "content": f"<context>\nDrug {n}: {n} mg.\n</context>\n<question>\nPrice?\n</question>",
                },
                {"role": "assistant", "content": f"<think>x</think><proof></proof><answer>{right}</answer>"},
            ]
        }
        for n in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    variables = {"DIPG_DATASET_PATH": str(tmp_path / "rows.jsonl"), "HF_HUB_OFFLINE": "1"}
    with serving(python, "serve_questions.py", path=tmp_path, **variables) as url:
        environment = OpenEnv(url=url)
        opened = [environment.open(Problem("p", "Answer.", f'{{"seed": {place // 4}}}')) for place in range(12)]
        texts = [session.reset(0)[0] for session in opened]
        assert texts == [f"Drug {place // 4}: {place // 4} mg.\nPrice?" for place in range(12)]
        assert opened[0].step("no")[1:3] == (-50.0, True)
        assert opened[1].step(right)[1:3] == (30.0, True)
        for session in opened:
            session.close()


def test_a_package_of_openenv_as_installed_has_one_session(tmp_path: Path) -> None:
    python = interpreter("REWARDFLOW_OPENENV_PYTHON", "openenv.lock")
    question = "<context>\nDrug A: 1 mg.\n</context>\n<question>\nWhat is the dose?\n</question>"
    answer = "<think>x</think><proof>Drug A: 1 mg.</proof><answer>1 mg</answer>"
    row = {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    variables = {"DIPG_DATASET_PATH": str(tmp_path / "rows.jsonl"), "HF_HUB_OFFLINE": "1"}
    with serving(python, "-m", "med_safety_gym.app", path=tmp_path, **variables) as url:
        opened, second = (OpenEnv(url=url).open(Problem("p", "Answer the question.")) for _ in range(2))
        assert opened.reset(0) == ("Drug A: 1 mg.\nWhat is the dose?", {})
        with pytest.raises(UserError, match=r"no session left .*; start it with a larger max_concurrent_envs"):
            second.reset(0)
        second.close()
        _, reward, over, _, info = opened.step("no format at all")
        assert reward < 0 and over and info["solved"] is False
        opened.close()
