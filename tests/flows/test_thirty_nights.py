"""Thirty nights of a team, with a clock that the test sets: messages, promotions and the audit log are checked.

Flows, servers, data versions and registry are real. The policy is tiny and learns within thirty rounds to
distinguish day from night, so that more rounds give a better candidate.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from project import environment, make_project, rewardflow
from running import Pair, wait_for

from flows.schedule.silence import report_missed_runs
from tasks.host import clock
from tasks.messages.outbox import Outbox
from tasks.messages.receivers import URLS, receivers
from tests.support.message_listener import Listener

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

FIRST = datetime(2030, 3, 1, 1, tzinfo=UTC)
SERVED = {"nightly": [("0 1 * * *", "UTC")]}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
RECIPE = """
extends: tiny
name: nights
data: {name: days, path: ROWS, format: kinds}
policy: {tokenizer: {kind: words, vocabulary: 64}}
reward_model: null
rewards: [{name: python, path: nightly_reward.py, label: right}]
select: {name: all}
warm_start: {steps: 40, batch: 32, optimiser: {learning_rate: 0.003, warmup_steps: 5, decay: cosine}}
rollouts: {name: sample, prompts: 16, group_size: 8, max_tokens: 6}
schedule: {rounds: 15, checkpoint_every: 1, samples_every: 50, optimiser: {learning_rate: 0.001, warmup_steps: 1}}
evaluation: {problems: 100, samples: 8, ks: [1, 4]}
gate: {problems: 120, samples: 8, length_margin: null, diversity_margin: null}
"""
REWARD = """
import os

def reward(completions, answers):
    if os.environ.get("GRADER") == "away":
        raise ConnectionError("the grader is away")
    return [float(text.rpartition("####")[2].strip() == answer) for text, answer in zip(completions, answers)]
"""


def rows(folder: Path, seed: int, *, others: bool = False) -> None:
    """Write a version of the data: is it day or night? With `others`, half of the rows use other words."""
    drawn = random.Random(seed)
    problems, demonstrations = [], []
    for number in range(400):
        split = "train" if number < 280 else "validation" if number < 340 else "gate"
        letters = [LETTERS[number % 26], LETTERS[number // 26], LETTERS[(number * 7 + seed) % 26]]
        for when, answer in (("noon", "1"), ("dusk", "2")) if others and number % 2 else (("day", "1"), ("night", "2")):
            words = [when, *letters, "?"]
            problem = {"split": split, "prompt": " ".join(words), "answer": answer, "level": 1}
            problems.append(problem)
            if split != "gate":
                completion = f"#### {drawn.choice('12')}"
                demonstrations.append(problem | {"completion": completion, "flaw": "none"})
    folder.mkdir(exist_ok=True)
    for name, kept in (("problems", problems), ("demonstrations", demonstrations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))


@dataclass(frozen=True)
class Night:
    """One scheduled night: its settings and the expected outcome."""

    overrides: str | None = None
    """Overrides of the training; None keeps those of the night before."""
    due: tuple[str, ...] = ()
    """Kinds of the messages that must be sent, in order."""
    decision: str = "judged before"
    train: bool = True
    data: tuple[int, bool] | None = None
    """Seed of a new version of the data, and whether half of its rows use other words."""
    grader: str = ""
    """Fault of the grader, if any."""
    silent: bool = False
    """No flow starts."""
    killed: bool = False
    """The process is killed during the training."""
    approve: bool = False
    """A person first approves the candidate that waits."""
    away: bool = False
    """The receiver refuses messages this night and gets them later."""


NOTHING_BEGINS = Night(silent=True, due=("silent",), decision="")
NIGHTS = [
    Night("schedule.rounds=15", ("promoted",), "promoted"),
    Night(),
    Night("schedule.rounds=2", decision="kept"),  # a worse candidate is not reported
    Night("schedule.rounds=30", ("promoted",), "promoted", away=True),
    Night(away=True),
    Night(),
    Night("schedule.rounds=33", ("stopped", "stopped"), "", grader="away"),  # training and evaluation stop
    Night("schedule.rounds=30"),  # gives the weights of the champion
    NOTHING_BEGINS,
    NOTHING_BEGINS,
    Night(),
    Night("schedule.rounds=25 seed=2", killed=True, decision=""),
    Night(due=("stopped",), decision="kept"),  # reports the night before; the run resumes from its checkpoint
    Night(),
    Night("schedule.rounds=5 schedule.optimiser.learning_rate=1e-12", ("refused",), "refused"),  # no weight changes
    Night("schedule.rounds=60", ("worse", "drifted"), "", data=(2, True), train=False),
    Night(due=("worse",), decision="", train=False),
    Night(due=("worse",), decision="kept"),  # knows the new words, but is not significantly better
    Night("schedule.rounds=150 approval=true", ("waiting", "worse"), "waiting"),
    Night(approve=True),  # the approved champion is judged on the new words
    Night(),
    Night("schedule.rounds=3 approval=true", decision="kept"),
    Night("schedule.rounds=150 approval=true"),
    Night(due=("waiting",), decision="waiting", data=(3, True)),  # new rows of the same kind, so no drift
    Night(),
    Night(approve=True),
    NOTHING_BEGINS,
    Night(),
    Night(),
    Night(),
]


class Team:
    """A state folder, the process that runs its nights, and the receiver of its messages."""

    def __init__(self, folder: Path, prefect: str) -> None:
        self.clone, self.home, self.rows = make_project(folder / "clone"), folder / "home", folder / "rows"
        self.listener = Listener()
        (self.clone / "recipes/nights.yaml").write_text(RECIPE.replace("ROWS", str(self.rows)))
        (self.clone / "recipes/nightly_reward.py").write_text(REWARD)
        self.given = {
            "REWARDFLOW_HOME": str(self.home),
            "PREFECT_API_URL": f"{prefect}/api",
            "PYTHONPATH": str(self.clone),
            "OMP_NUM_THREADS": "1",
            URLS: self.listener.receiver.url,
        }
        self.process: subprocess.Popen[str] | None = None

    def begin(self, night: dict[str, Any]) -> "subprocess.Popen[str]":
        """Begin a night."""
        if self.process is None:
            driver = Path(__file__).with_name("nights_driver.py")
            self.process = subprocess.Popen(
                [sys.executable, str(driver), "nights"],
                cwd=self.clone, env=environment(**self.given), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(night) + "\n")
        self.process.stdin.flush()
        return self.process

    def end(self, process: "subprocess.Popen[str]") -> dict[str, Any]:
        """Return the result of the night."""
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            if line.startswith("NIGHT "):
                return dict(json.loads(line.removeprefix("NIGHT ")))
            said.append(line)
        pytest.fail("".join(said))

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """Kill the process during the training."""
        before = set(self.home.glob("store/fine_tune/*/result.json"))

        def checkpoints() -> list[Path]:
            there = self.home.glob("store/fine_tune/*/checkpoints/round_000005")
            return [round for round in there if round.parents[1] / "result.json" not in before]

        wait_for("a round", checkpoints)
        process.kill()
        process.wait()
        self.process = None


@pytest.fixture
def team(servers: Pair, tmp_path: Path) -> Iterator[Team]:
    team = Team(tmp_path, servers.prefect)
    yield team
    team.listener.close()
    if team.process is not None:
        team.process.kill()
        team.process.wait()


def test_thirty_nights(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages are exactly those that are due, the gate decides on promotions, and the audit log is complete."""
    assert len(NIGHTS) == 30
    monkeypatch.setenv(URLS, team.listener.receiver.url)
    rows(team.rows, 1)
    overrides: list[str] = []
    waiting, promoted, due = None, [], []
    for number, night in enumerate(NIGHTS):
        at = FIRST + timedelta(days=number)
        noon = at + timedelta(hours=11)
        overrides = overrides if night.overrides is None else night.overrides.split()
        if night.data is not None:
            rows(team.rows, night.data[0], others=night.data[1])
        team.listener.status = 503 if night.away else 200
        if not night.silent:
            asked = {"at": at.isoformat(), "overrides": overrides, "train": night.train, "grader": night.grader}
            process = team.begin(asked | {"approve": waiting if night.approve else None})
            promoted += [waiting] if night.approve else []
            if night.killed:
                team.kill(process)
            else:
                said = team.end(process)
                assert said["decision"] == night.decision, (number + 1, said)
                assert bool(said["error"]) == (night.grader != ""), (number + 1, said)
                waiting = said["version"] if said["decision"] == "waiting" else waiting
                promoted += [said["version"]] if said["decision"] == "promoted" else []
        monkeypatch.setattr(clock, "now", lambda noon=noon: noon)
        report_missed_runs(team.home, SERVED, "http://127.0.0.1/deployments")
        Outbox(team.home).deliver(receivers())
        due += [(kind, at.date().isoformat()) for kind in night.due]
        if not night.away:
            heard = {event["event_id"]: (event["kind"], event["at"][:10]) for event in team.listener.heard}
            assert list(heard.values()) == due, (
                number + 1,
                team.listener.heard[-3:],
            )
    assert len(set(team.listener.ids)) == len(due)
    audit = rewardflow(team.clone, "audit", "--json", **team.given)
    assert audit.returncode == 0, audit.stderr
    entries = [json.loads(line) for line in audit.stdout.splitlines()]
    assert [entry["number"] for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry["version"] for entry in entries if entry["did"] == "promoted"] == promoted
    assert [entry["by"] for entry in entries if entry["did"] == "promoted"][2:] == ["Ann", "Ann"]
    assert [entry["at"] for entry in entries] == sorted(entry["at"] for entry in entries)
    assert {entry["at"][:4] for entry in entries} == {"2030"}
