"""ask_json: a broken answer is requested again, and every failure is one NoAnswer that does not show the key."""

import os
import subprocess
import sys
import urllib.request

import pytest

from models.base import http_answers
from models.base import http_client as client
from models.base.http_client import NoAnswer, ask_json
from tests.support.loopback_server import HALF_ANSWERS, HALF_REFUSALS, UNREADABLE_ANSWERS, sending

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"whole":1}'
BROKEN = HALF_ANSWERS | UNREADABLE_ANSWERS


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT", 0.01)


def ask(address: str, seconds: float = 20.0) -> object:
    return ask_json(f"{address}/x", {"a": 1}, key_variable="NO_KEY", seconds=seconds, tries=2)


@pytest.mark.parametrize("name", BROKEN)
def test_half_an_answer_is_asked_for_again_and_no_answer_in_the_end(name: str) -> None:
    asked: list[str] = []

    def reply(path: str) -> bytes:
        asked.append(path)
        return BROKEN[name]

    with sending(reply) as address, pytest.raises(NoAnswer, match="/x does not answer as it should") as refused:
        ask(address)
    assert len(asked) == 2 and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", BROKEN)
def test_a_server_that_breaks_off_once_is_heard_the_second_time(name: str) -> None:
    replies = [WHOLE, BROKEN[name]]
    with sending(lambda path: replies.pop()) as address:
        assert ask(address) == {"whole": 1}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", HALF_REFUSALS)
def test_a_refusal_whose_text_breaks_off_is_a_refusal_of_its_status(name: str) -> None:
    with (
        sending(lambda path: HALF_REFUSALS[name], stalls=name == "stalls") as address,
        pytest.raises(NoAnswer, match=r"does not answer as it should \(503\)$"),
    ):
        ask(address, seconds=1.5)


@pytest.mark.parametrize("key", ["very-secret\n", "very-secret\r\nX: y", "very-se\u20accret"])
def test_a_key_that_no_header_can_hold_is_named_by_its_variable_and_never_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(
        NoAnswer, match=r"MY_KEY holds a line break or another character that a header cannot have$"
    ) as refused:
        ask_json("http://127.0.0.1:9/x", key_variable="MY_KEY", seconds=1.0)
    assert "very" not in str(refused.value)


def test_a_server_on_this_machine_is_asked_without_the_proxy_of_the_environment() -> None:
    """In a process of its own, which imports nothing that sets NO_PROXY, since the proxy is read at import."""
    code = (
        "import sys; from models.base.http_client import ask_json;"
        "print(ask_json(sys.argv[1] + '/x', key_variable='NO_KEY', seconds=20.0, tries=1))"
    )
    given = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    with sending(lambda path: WHOLE) as address:
        for here in (address, address.replace("127.0.0.1", "localhost")):
            asked = [sys.executable, "-c", code, here]
            environment = given | {"http_proxy": "http://127.0.0.1:9", "PYTHONPATH": os.pathsep.join(sys.path)}
            ended = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=60, check=True)
            assert ended.stdout.strip() == "{'whole': 1}"


def test_a_server_elsewhere_is_asked_through_the_proxy() -> None:
    with sending(lambda path: WHOLE) as proxy:
        handler = http_answers._ProxyForOthers({"http": proxy})
        opener = urllib.request.build_opener(handler)
        with opener.open("http://elsewhere.invalid/x", timeout=20) as answer:
            assert answer.read() == b'{"whole":1}'
