"""Tools of MCP servers, tested with real servers over both transports, including servers that are killed or hang."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.agents.environments.tools import Tools
from models.agents.play.mcp_sessions import Described, ServerAddress, close_all, session_with
from models.agents.tools.mcp import Mcp, arguments_of, usage_of
from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import Problem
from models.method.tool import ToolError
from tests.support.tiny_episodes import ENDING, Chatter, episodes
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_resources import make_resources

SERVER = Path(__file__).parents[3] / "support" / "fact_server.py"
COMMAND = (sys.executable, str(SERVER))


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


@pytest.mark.rotating(of=6)
def test_a_hundred_calls_are_one_session_a_killed_server_is_started_again_and_the_policy_reads_of_it() -> None:
    opened = Tools(tool=[Mcp(command=COMMAND)], introduced=True).open(Problem("p", "?"))
    lines = opened.reset(1)[0].splitlines()
    assert (
        "add: Adds two numbers. (a: integer, b: integer)" in lines and "shout: Says it loudly. (text: string)" in lines
    )
    server, answers = int(opened.step("who:")[0]), []
    for number in range(100):
        if number == 50:
            os.kill(server, signal.SIGKILL)
            assert opened.step("add: {}")[0] == "error: the server was lost, and the call with it"
        answers.append(opened.step(f'add: {{"a": {number}, "b": 1}}')[0])
    assert answers == [str(number + 1) for number in range(100)]
    assert int(opened.step("who:")[0]) != server
    assert session_with(ServerAddress(COMMAND, "", 10)).opened == 2


@pytest.mark.rotating(of=6)
def test_a_server_is_started_again_so_often_and_no_more() -> None:
    offers = Mcp(command=COMMAND, restarts=1, only=("die",)).offers()
    assert list(offers) == ["die"]
    for _ in range(3):
        with pytest.raises(ToolError, match="the server was lost"):
            offers["die"].call("")
    assert session_with(ServerAddress(COMMAND, "", 1)).opened == 2


@pytest.mark.rotating(of=6)
def test_a_server_that_hangs_ends_the_episode_that_asked_and_no_other(tmp_path: Path) -> None:
    tool = Mcp(command=COMMAND, seconds=1.0, restarts=7)
    hang, add = tool.offers()["hang"], tool.offers()["add"]
    asked = 0

    def act(turn: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            hang.call("")
        assert add.call('{"a": 1, "b": 2}') == "3"

    engine = TransformersEngine(save_start(tmp_path), EngineSettings(precision="float32"), end=ENDING.ends)
    source = episodes(Chatter(lasts=2, act=act), prompts=2, group_size=2, seconds=30.0)
    made = source(make_resources(engine, codec=ENDING), PROBLEMS[:2], 0)
    assert [rollout.episode.cut for rollout in made].count("time") == 1
    assert [rollout.episode.cut for rollout in made].count("error") == 0
    assert session_with(ServerAddress(COMMAND, "", 7)).opened == 2


@pytest.mark.rotating(of=6)
def test_a_server_on_loopback_answers_over_http() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([*COMMAND, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        tool = Mcp(address=f"http://127.0.0.1:{port}/mcp", seconds=20.0)
        tool.try_out()
        assert tool.offers()["shout"].call("hello") == "HELLO"
        with pytest.raises(ToolError, match="Error executing tool fail"):
            tool.offers()["fail"].call("more")
    finally:
        close_all()
        server.kill()
        server.wait()


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "settings, why",
    [
        ({}, "needs a command or an address"),
        ({"command": COMMAND, "address": "http://127.0.0.1:1/mcp"}, "name one of them"),
        ({"address": "http://example.org/mcp"}, "not an http address on loopback"),
        ({"address": "https://127.0.0.1/mcp"}, "not an http address on loopback"),
        ({"command": ("no-such-program",)}, "the MCP server no-such-program: "),
        ({"command": COMMAND, "only": ("none",)}, "the server has no tool 'none'; there is add, shout"),
    ],
)
def test_a_server_that_cannot_be_had_is_refused_by_a_line(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        Mcp(**settings).try_out()


def test_arguments_are_read_by_the_schema() -> None:
    both = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}
    single = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert arguments_of(Described("t", "", both), '{"a": 1, "b": "x"}') == {"a": 1, "b": "x"}
    assert arguments_of(Described("t", "", single), " 7 ") == {"n": 7}
    assert arguments_of(Described("t", "", {}), "") == {}
    assert arguments_of(Described("t", "", {"properties": {"s": {"type": "string"}}}), "7") == {"s": "7"}
    for schema, text, why in (
        (both, "1", "JSON object with a, b"),
        (single, "x", "n is a integer"),
        (both, "{", "not JSON"),
    ):
        with pytest.raises(ToolError, match=why):
            arguments_of(Described("t", "", schema), text)
    assert usage_of(Described("t", "Does\n it.", single)) == "Does it. (n: integer)"
