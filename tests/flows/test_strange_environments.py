"""Tests in unusual environments: a proxy for all addresses, a user without a name, no home folder."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import make_project
from running import ROOT, shell

from flows.doctor import diagnose
from tasks.host.environment import keep_loopback_direct, name_user
from tests.support.loopback_server import answering

PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
NAMELESS = ["unshare", "-U", "--map-user=12345", "--map-group=12345"]
HOMELESS = [*NAMELESS, "env", "-u", "USER", "-u", "LOGNAME", "-u", "HOME"]
needs_namespaces = pytest.mark.skipif(
    subprocess.run([*NAMELESS, "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may not make user namespaces",
)


@pytest.fixture
def proxied() -> Iterator[dict[str, str]]:
    """Yield an environment with a proxy that accepts connections and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        without = {name: value for name, value in shell().items() if name.lower() != "no_proxy"}
        yield {**without, **dict.fromkeys(PROXIES, address), "PYTHONPATH": str(ROOT)}


CLIENTS = {
    "urllib": "import urllib.request; urllib.request.urlopen(url, timeout=5).read()",
    "requests": "import requests; requests.get(url, timeout=5).raise_for_status()",
    "httpx": "import httpx; httpx.get(url, timeout=5).raise_for_status()",
    "aiohttp": (
        "import aiohttp, asyncio\n"
        "async def get():\n"
        "    async with aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(5)) as session:\n"
        "        async with session.get(url) as answer: answer.raise_for_status()\n"
        "asyncio.run(get())"
    ),
    "botocore": ("from botocore.utils import get_environ_proxies\nassert get_environ_proxies(url) == {}"),
    "websockets": "from websockets.proxy import get_proxy\nfrom websockets.uri import parse_uri\n"
    "assert get_proxy(parse_uri(url.replace('http:', 'ws:'))) is None",
}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_every_client_of_http_reaches_loopback_past_a_proxy_that_does_not_answer(
    proxied: dict[str, str], tmp_path: Path, host: str
) -> None:
    with answering(lambda path, body: (200, {"well": True})) as address:
        url = address.replace("127.0.0.1", host)
        tries = "".join(f"try:\n    exec({code!r}, {{'url': url}})\nexcept Exception as error:\n    "
                        f"failed[{name!r}] = repr(error)\n" for name, code in CLIENTS.items())  # fmt: skip
        code = f"import json, flows\nurl, failed = {url!r}, {{}}\n{tries}print(json.dumps(failed))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=proxied, cwd=tmp_path)
    assert json.loads(done.stdout) == {}, done.stderr


@pytest.mark.parametrize(
    ("given", "lower", "upper"),
    [
        ({}, "127.0.0.1,localhost,::1", "127.0.0.1,localhost,::1"),
        ({"NO_PROXY": "corp.example, 10.0.0.0/8"}, *["corp.example,10.0.0.0/8,127.0.0.1,localhost,::1"] * 2),
        ({"no_proxy": "a", "NO_PROXY": "b"}, "a,127.0.0.1,localhost,::1", "b,127.0.0.1,localhost,::1"),
        ({"no_proxy": "localhost,127.0.0.1"}, *["localhost,127.0.0.1,::1"] * 2),
        ({"no_proxy": "*"}, "*", None),
    ],
)
def test_what_a_user_excepts_from_the_proxy_stays_excepted(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], lower: str, upper: str | None
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        keep_loopback_direct()
        assert (os.environ["no_proxy"], os.environ.get("NO_PROXY")) == (lower, upper)


@needs_namespaces
def test_a_user_without_a_name_or_a_home_has_both_in_every_process(tmp_path: Path) -> None:
    code = (
        "import flows, getpass, pathlib, subprocess, sys\n"
        "ask = 'import getpass, pathlib; print(getpass.getuser(), pathlib.Path.home())'\n"
        "print(getpass.getuser(), pathlib.Path.home(), flush=True)\n"
        "subprocess.run([sys.executable, '-c', ask], check=True)"
    )
    done = subprocess.run(
        [*HOMELESS, sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={**shell(), "PYTHONPATH": str(ROOT), "REWARDFLOW_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"uid12345 {tmp_path}/state/home"] * 2, done.stderr


def test_a_user_with_a_name_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("USER", "LOGNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    name_user(tmp_path)
    assert not {"USER", "LOGNAME", "HOME"} & os.environ.keys()


@needs_namespaces
def test_the_doctor_finds_a_user_without_a_name_and_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    code = (
        "import flows\nfrom flows.doctor import _user\nlook = _user()\nprint(look.ok, '|', look.detail, '|', look.mend)"
    )
    env = {**shell(), "PYTHONPATH": str(ROOT), "REWARDFLOW_HOME": str(tmp_path)}
    seen = [
        subprocess.check_output([*HOMELESS, *more, sys.executable, "-c", code], text=True, cwd=tmp_path, env=env)
        for more in ([], ["HOME=/proc"])
    ]
    assert seen[0] == f"True | uid12345 has no name on this machine: called uid12345, home {tmp_path}/home | \n"
    assert seen[1].startswith("False | uid12345 has no name")
    assert seen[1].endswith("home /proc, which cannot be written | set HOME to a folder that this user may write\n")


def test_the_doctor_says_whose_home_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    look = next(finding for finding in diagnose(ROOT, tmp_path) if finding.name == "User")
    assert look.ok and look.detail == f"home {tmp_path}"


@pytest.mark.thorough
@pytest.mark.slow
@needs_namespaces
def test_a_run_trains_behind_a_proxy_for_a_user_without_a_name_or_a_home(
    proxied: dict[str, str], tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    words = [
        "-m",
        "flows.command_line",
        "run",
        "recipes/tiny.yaml",
        "--set",
        "schedule=null",
        "--set",
        "reward_model=null",
    ]
    done = subprocess.run(
        [*HOMELESS, sys.executable, *words], capture_output=True, text=True, cwd=project,
        env={**proxied, "PYTHONPATH": str(project), "HF_HUB_OFFLINE": "1", "REWARDFLOW_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
