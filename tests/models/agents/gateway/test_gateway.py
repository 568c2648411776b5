"""Agent programs at the gateway: the tokens they receive are those trained on, and each fails independently."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from models.agents.gateway.agents import AgentPrograms
from models.agents.gateway.server import Gateway
from models.agents.play.play import play
from models.base.errors import UserError
from models.engines.engine import Sampling
from models.method.rollout import sequences_of
from models.parts.rewards.episodes.turn_rewards import TurnRewards
from models.parts.rollouts.program import ProgramRollouts
from tests.support.agent_programs import assert_all_calls_are_trained_on_once, draw, program
from tests.support.tiny_episodes import ENDING, Listening, gap
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, run, same_weights
from tests.support.tiny_resources import make_resources


@pytest.mark.parametrize("mode", ["talk", "branch", "text"])
def test_the_learners_ids_are_the_engines_and_every_call_is_trained_on_once(engine: Listening, mode: str) -> None:
    made = draw(engine, program(mode))
    assert_all_calls_are_trained_on_once(engine, made)
    assert gap(made) <= 1e-5
    assert [rollout.group for rollout in made] == [0, 0, 1, 1]


def test_a_conversation_that_goes_on_is_one_sequence_whose_ids_are_never_encoded_again(engine: Listening) -> None:
    made = [rollout for rollout in draw(engine, program("talk")) if not rollout.episode.cut]
    assert made
    for rollout in made:
        between = [
            list(rollout.completion[turn.stop : after.start])
            for turn, after in zip(rollout.episode.turns, rollout.episode.turns[1:], strict=False)
        ]
        assert between == ENDING.inside(["3 + 4"]) and rollout.problem.tokens in {p.tokens for p in PROBLEMS}


def test_branches_of_an_episode_share_their_history_in_the_learner(engine: Listening) -> None:
    made = draw(engine, program("branch"))
    assert sequences_of(made).nested
    apart = [
        (episode.episode.parts[0], part) for episode in made for part in episode.episode.parts if part.episode.history
    ]
    assert apart
    for root, rollout in apart:
        shared = (*root.problem.tokens, *root.completion)
        assert rollout.problem.tokens == shared[: len(rollout.problem.tokens)]
        assert len(rollout.problem.tokens) == len(root.problem.tokens) + rollout.episode.history


def test_an_episode_of_several_sequences_is_worth_what_its_program_says(engine: Listening) -> None:
    made = draw(engine, program("branch"))
    worth = TurnRewards()(make_resources(engine), made)
    for rollout, value in zip(made, worth.tolist(), strict=True):
        assert value == rollout.text.count("7")


def test_an_answer_is_held_against_the_problems(engine: Listening) -> None:
    assert all(rollout.episode.solved for rollout in draw(engine, program("talk", shows_answer=True)))
    assert all(rollout.episode.solved is None for rollout in draw(engine, program("talk")))


def test_a_program_that_crashes_ends_its_own_episode_and_no_log_holds_a_key(
    engine: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    made = draw(engine, program("crash"))
    cuts = {problem: {r.episode.cut for r in made if r.problem.id == problem} for problem in ("p0", "p1")}
    assert cuts["p1"] == {"error"} and "error" not in cuts["p0"]
    assert all(rollout.trained_tokens == 0 for rollout in made if rollout.problem.id == "p1")
    assert "it broke, with the key ...." in caplog.text


@pytest.mark.rotating(of=6)
def test_a_program_that_hangs_ends_its_own_episode(engine: Listening) -> None:
    began = time.monotonic()
    made = draw(engine, program("hang", seconds=2.0))
    assert time.monotonic() - began < 60
    assert {r.episode.cut for r in made if r.problem.id == "p1"} == {"time"}
    assert "time" not in {r.episode.cut for r in made if r.problem.id == "p0"}


@pytest.mark.parametrize("limit, cut", [({"calls": 3}, "turns"), ({"max_tokens": 12}, "tokens")])
def test_a_program_is_refused_what_is_beyond_its_limits_and_may_end_by_itself(
    engine: Listening, limit: Mapping[str, int], cut: str
) -> None:
    source = program("greedy", call_tokens=None if "calls" in limit else 3, **limit)
    made = draw(engine, source)
    assert cut in {rollout.episode.cut for rollout in made}
    for rollout in made:
        assert len(rollout.episode.turns) <= source.calls and len(rollout.completion) <= source.max_tokens


@pytest.mark.rotating(of=6)
def test_the_same_seed_runs_the_same_programs(engine: Listening) -> None:
    first, again, other = (draw(engine, program("branch"), number) for number in (0, 0, 1))
    assert [r.completion for r in first] == [r.completion for r in again] != [r.completion for r in other]


def test_evaluations_play_the_programs_too(engine: Listening) -> None:
    played = play(engine, ENDING, program("talk").episodes, PROBLEMS[:2], Sampling(max_tokens=48, log_probs=False), 3)
    assert [len(group) for group in played] == [1, 1] and all(group[0].turns for group in played)
    assert played[0][0].reward == played[0][0].text.count("7")


FUNCTION = """
import json, urllib.request

def run(task, base_url, api_key):
    if task["id"] == "p1":
        raise RuntimeError("no more")
    from openai import OpenAI
    client = OpenAI(base_url=base_url, api_key=api_key)
    assert [model.id for model in client.models.list()] == ["policy"]
    messages = [{"role": "user", "content": task["prompt"]}]
    reply = client.chat.completions.create(model="policy", messages=messages).choices[0].message.content
    messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "5"}]
    usage = {"include_usage": True}
    events = list(client.chat.completions.create(model="policy", messages=messages, stream=True, stream_options=usage))
    assert events[-1].usage.completion_tokens > 0 and not events[-1].choices
    return {"reward": 1, "answer": "".join(c.delta.content or "" for event in events for c in event.choices)}
"""


def test_a_function_asks_with_openais_own_client(engine: Listening, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    (tmp_path / "agent.py").write_text(FUNCTION)
    source = program("", command=(), path=str(tmp_path / "agent.py"), call_tokens=40)
    source.try_out()
    made = draw(engine, source)
    assert_all_calls_are_trained_on_once(engine, made)
    assert {rollout.problem.id for rollout in made} == {"p0"}
    assert [entry.sha256 for entry in source.given] and max(len(rollout.episode.turns) for rollout in made) == 2


def test_a_function_that_leaves_ends_its_own_episode_and_changes_nothing_of_the_run(
    engine: Listening, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("openai")
    leaving = FUNCTION.replace('raise RuntimeError("no more")', 'import os, sys; os.chdir("/"); sys.exit(0)')
    (tmp_path / "agent.py").write_text(leaving)
    here = os.getcwd()
    made = draw(engine, program("", command=(), path=str(tmp_path / "agent.py"), call_tokens=40))
    assert {rollout.problem.id for rollout in made} == {"p0"} and os.getcwd() == here
    assert f"UserCodeError: {tmp_path}/agent.py, line 6: called sys.exit(0)" in caplog.text


def test_the_server_answers_on_loopback_and_to_its_own_key_alone() -> None:
    with Gateway() as first, Gateway() as second:
        assert first.address.startswith("http://127.0.0.1:") and first.key("1") != second.key("1")
        for key in ("", "Bearer x.1", f"Bearer {second.key('1')}", f"Basic {first.key('1')}"):
            request = urllib.request.Request(f"{first.address}/models", headers={"Authorization": key})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            assert refused.value.code == 401
        request = urllib.request.Request(
            f"{first.address}/models", headers={"Authorization": f"Bearer {first.key('1')}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            assert json.load(response)["data"][0]["id"] == "policy"


def test_many_programs_connect_at_once() -> None:
    together = Barrier(150)
    with Gateway() as gateway:

        def connect(number: int) -> int:
            together.wait()
            request = urllib.request.Request(
                f"{gateway.address}/models", headers={"Authorization": f"Bearer {gateway.key(str(number))}"}
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                return int(response.status)

        with ThreadPoolExecutor(150) as threads:
            assert list(threads.map(connect, range(150))) == [200] * 150


@pytest.mark.rotating(of=6)
def test_a_run_over_programs_ends_with_the_same_weights_each_time(start: Path, tmp_path: Path) -> None:
    slots, schedule = replace(SLOTS, rollouts=program("branch"), rewards=[TurnRewards()]), replace(SCHEDULE, rounds=2)
    runs = [run(start, tmp_path / name, slots=slots, codec=ENDING, schedule=schedule)[0] for name in ("first", "other")]
    assert same_weights(*runs)


def test_a_recipe_names_a_command_or_a_file_and_not_both(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a program is a command or a path"):
        ProgramRollouts().try_out()
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="no function is called run"):
        ProgramRollouts(path=str(tmp_path / "none.py")).try_out()
    with pytest.raises(TypeError, match="asks the policy itself"):
        AgentPrograms(command=(), side_by_side=1, shows_answer=False).open(PROBLEMS[0])
