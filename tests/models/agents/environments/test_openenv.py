"""Environments of OpenEnv: turns become actions, observations become texts, and a server may fail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.agents.environments.openenv import OpenEnv
from models.agents.play.playing import Playing
from models.base.errors import UserError
from models.method.episode import EpisodeLimits, Turn
from models.method.problem import Problem
from tests.support.openenv_server import PAGES, openenv_server

PROBLEM = Problem("p", "Play.")


@pytest.fixture
def server() -> Iterator[tuple[str, list[Any]]]:
    with openenv_server() as made:
        yield made


def test_a_turn_is_the_only_text_of_the_action_and_the_text_of_the_observation_is_read(
    server: tuple[str, list[Any]],
) -> None:
    opened = OpenEnv(url=server[0]).open(PROBLEM)
    assert opened.reset(2**40 + 7) == ("Say a number.", {})
    seed = (2**40 + 7) % 2**31
    wrong, right = str((seed + 1) % 10), str(seed % 10)
    assert opened.step(wrong) == ("wrong", 0.0, False, False, {"solved": False})
    assert opened.step(f" {right}\n") == ("right", 1.0, True, False, {"solved": True})
    opened.close()
    assert server[1][:2] == [
        {"type": "reset", "data": {"seed": seed}},
        {"type": "step", "data": {"message": wrong}},
    ]


def test_episodes_have_sessions_of_their_own(server: tuple[str, list[Any]]) -> None:
    first, second = (OpenEnv(url=server[0]).open(PROBLEM) for _ in range(2))
    first.reset(3), second.reset(5)
    assert (first.step("5")[1], second.step("5")[1], first.step("3")[1]) == (0.0, 1.0, 1.0)
    first.close()
    second.close()


def test_an_answer_gives_parameters_of_the_reset(server: tuple[str, list[Any]]) -> None:
    opened = OpenEnv(url=server[0], reset={"level": 2}).open(Problem("p", "Play.", '{"seed": 4}'))
    opened.reset(9)
    assert server[1] == [{"type": "reset", "data": {"seed": 4, "level": 2}}]
    opened.close()
    with pytest.raises(UserError, match="problem p: the answer is none of environment openenv"):
        OpenEnv(url=server[0]).open(Problem("p", "Play.", "7"))


def test_an_action_of_several_fields_is_written_as_json(tmp_path: Path) -> None:
    pages = {**PAGES, "/schema": {"action": {"properties": {"message": {}, "size": {}}, "required": ["message"]}}}
    with openenv_server(pages) as (url, messages):
        opened = OpenEnv(url=url, action={"metadata": {}}).open(PROBLEM)
        opened.reset(3)
        assert opened.step("not JSON") == ("error: write the action as a JSON object", 0.0, False, False, {})
        text, reward, over, _, _ = opened.step('{"message": "3", "colour": 1}')
        assert (text, reward, over) == ("error: colour: Extra inputs are not permitted", 0.0, False)
        assert opened.step('{"message": "3"}')[1:3] == (1.0, True)
        assert messages[-1]["data"] == {"message": "3", "metadata": {}}
        opened.close()
        assert OpenEnv(url=url, turn_field="message", reads=("turn",)).open(PROBLEM).reset(0)[0] == "0"


@pytest.mark.parametrize("fault", ["close", "garble", "error", "not a number", "hang"])
def test_a_server_that_fails_ends_one_episode(fault: str) -> None:
    with openenv_server(fault=fault) as (url, _):
        opened = OpenEnv(url=url, seconds=0.5).open(PROBLEM)
        opened.reset(1)
        limits = EpisodeLimits(turns=2, turn_tokens=None, seconds=5, at_last_turn="kept", when_stuck="masked")
        playing = Playing((1,), opened, 0, 10, limits)
        with pytest.raises(Exception) as raised:
            opened.step("1")
        assert not isinstance(raised.value, UserError)
        playing.turns.append(Turn(0, 1))
        playing.receive(None, raised.value, 0.1)
        assert playing.over and playing.cut in ("error", "time")
        opened.close()


def test_a_server_without_a_free_session_is_one_line() -> None:
    with openenv_server(fault="capacity") as (url, _):
        opened = OpenEnv(url=url).open(PROBLEM)
        with pytest.raises(UserError, match=r"no session left .* \(1/1 sessions active\.\); start it with a larger"):
            opened.reset(1)
        opened.close()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "needs the url of a server or an image; name one of them"),
        ({"url": "http://127.0.0.1:1", "image": "a"}, "name one of them"),
        ({"url": "http://127.0.0.1:1"}, r"no server of OpenEnv answers at http://127\.0\.0\.1:1/schema"),
        ({"url": "https://example.org"}, "is not an http address on this machine"),
    ],
)
def test_an_environment_without_a_server_is_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        OpenEnv(**settings).try_out()


def test_version_and_field_are_checked(server: tuple[str, list[Any]]) -> None:
    OpenEnv(url=server[0], version="1.2").try_out()
    with pytest.raises(UserError, match=r"version: 1\.0 is wanted, but the server at .* reports 1\.2"):
        OpenEnv(url=server[0], version="1.0").try_out()
    with pytest.raises(UserError, match="turn_field: the action has no field 'text'; there is"):
        OpenEnv(url=server[0], turn_field="text").try_out()


def test_an_image_needs_a_container_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="image: echo needs docker or podman, and neither is installed") as raised:
        OpenEnv(image="echo").try_out()
    assert "\n" not in str(raised.value)


def test_an_image_is_started_on_a_port_of_loopback_and_removed_if_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: tuple[str, list[Any]]
) -> None:
    log, port = tmp_path / "log", server[0].rpartition(":")[2]
    program = tmp_path / "docker"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\ncase "$1" in\nrun) [ "$6" != missing ] || {{ echo "no such image" >&2; '
        f"exit 125; }}; echo abc;;\nport) echo 127.0.0.1:{port};;\nesac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    opened = OpenEnv(image="secret").open(PROBLEM)
    opened.reset(3)
    assert opened.step("3")[1] == 1.0
    opened.close()
    assert log.read_text().startswith("run --detach --rm --publish 127.0.0.1::8000 secret\n")
    with pytest.raises(UserError, match=r"image: missing cannot be started \(no such image\)"):
        OpenEnv(image="missing").try_out()
