"""Guarantees for whole episodes: kill and resumption, the canary, cuts, and answers that a tool gives away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

from models.engines.engine import CompletionRequest, EngineSettings, Generated, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.packing import Sequences
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.rewards.episodes.solved import Solved
from models.parts.rewards.models.learned import LearnedReward
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rewards.rules.python_file import PythonReward
from tests.support.tiny_episodes import ENDING, Chatter, episodes
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, run, save_start
from tests.support.tiny_resources import make_resources

ROOT = Path(__file__).resolve().parents[4]
RULES = ("kept", "wrong", "masked")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


def in_a_process(start: Path, checkpoints: Path, steps: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_search", str(start), str(checkpoints), str(steps)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=600,
        check=False,
    )
    return done.returncode


@pytest.mark.thorough
def test_a_process_that_is_killed_in_the_midst_of_an_episode_ends_with_the_same_weights(
    start: Path, tmp_path: Path
) -> None:
    """The process is killed by SIGKILL and resumed by a fresh process. The weights are equal bit for bit."""
    assert in_a_process(start, tmp_path / "killed", 130) == -signal.SIGKILL
    assert not (tmp_path / "killed.safetensors").exists() and list((tmp_path / "killed").iterdir())
    assert in_a_process(start, tmp_path / "killed", 0) == 0
    assert in_a_process(start, tmp_path / "whole", 0) == 0
    whole, resumed = (load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)


class Gap(Reward):
    """A reward of zero that records the gap between engine and learner, over all tokens that the policy wrote."""

    name = "gap"
    seen: ClassVar[list[float]] = []

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> torch.Tensor:
        read = resources.readings.policy(rollouts)
        for row, rollout in zip(read, rollouts, strict=True):
            assert rollout.behaviour_log_probs is not None
            apart = (row.cpu() - rollout.behaviour_log_probs)[torch.tensor(rollout.written)]
            self.seen.append(float(apart.abs().max()))
        return torch.zeros(len(rollouts))


@pytest.mark.rotating(of=6)
def test_in_the_loop_engine_and_learner_agree_over_whole_episodes_to_a_hundred_thousandth(
    start: Path, tmp_path: Path
) -> None:
    """The gap is measured in every round, while the weights change."""
    slots = replace(SLOTS, rollouts=episodes(Chatter(lasts=3)), rewards=[*SLOTS.rewards, Gap()])
    Gap.seen.clear()
    run(start, tmp_path / "run", slots=slots, codec=ENDING)
    assert len(Gap.seen) == SCHEDULE.rounds * 16 and max(Gap.seen) <= 1e-5


LEAK = "#### 7"


def leaked() -> Rollout:
    """Return a rollout in which the environment gives the answer away and the policy does not state it."""
    said, heard = ENDING.completions(["3 +", "8 = ;"]), ENDING.inside([f"\n{LEAK}\n"])[0]
    ids = (*said[0], *heard, *said[1])
    second = len(said[0]) + len(heard)
    turns = (
        Turn(0, len(said[0]), text="3 +", response=LEAK),
        Turn(second, len(ids), text="8 = ;"),
    )
    rollout = Rollout(Problem("p", "1 + 2 =", "7", tokens=(4,)), 0, ids, torch.zeros(len(ids)), "3 +\n8 = ;", True)
    rollout = replace(rollout, episode=replace(rollout.episode, turns=turns))
    return replace(rollout, trained=rollout.written)


def test_an_answer_that_a_tool_gives_away_earns_nothing_through_any_reward_that_reads_text(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def answers(completions, completion_ids, **rest):\n"
        "    rows = zip(completions, completion_ids)\n"
        "    return [float('#### 7' in text) + float(IDS in str(ids)) for text, ids in rows]\n"
        f"IDS = str({ENDING.inside([LEAK])[0]})[1:-1]\n"
    )
    read: list[Sequences] = []

    def reads(sequences: Sequences) -> torch.Tensor:
        read.append(sequences)
        wanted = str(ENDING.inside([LEAK])[0])[1:-1]
        return torch.tensor([float(wanted in str(list(ids))) for ids in sequences.completions])

    resources = make_resources(scorer=reads, codec=ENDING)
    rollout = leaked()
    assert LEAK in ENDING.text([rollout.completion])[0], "the tool gave nothing away"
    rewards: list[Any] = [
        ExactAnswer(),
        Solved(),
        LearnedReward(squash="none"),
        PythonReward(path=str(tmp_path / "mine.py"), function="answers"),
    ]
    for reward in rewards:
        assert not reward(resources, [rollout]).any(), reward.name
    assert [list(ids) for ids in read[0].completions] == [list(rollout.written_ids)]
    aloud = replace(rollout, text=f"3 +\n{LEAK}")
    assert ExactAnswer()(resources, [aloud]).tolist() == [1.0], "an answer that the policy states itself counts"


def test_no_reward_makes_text_of_a_whole_completion() -> None:
    """The text of a whole completion also contains the environment's words; only `text` and the turns do not."""
    files = sorted((ROOT / "models" / "parts" / "rewards").rglob("*.py"))
    assert len(files) > 10 and not [file.name for file in files if "codec.text(" in file.read_text()]


CUTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("turn", {"turn_tokens": 2, "turns": 9, "max_tokens": 60}, "tokens", "wrong"),
    ("episode", {"turns": 9, "max_tokens": 20}, "tokens", "wrong"),
    *((f"turns {rule}", {"turns": 2, "at_last_turn": rule}, "turns", rule) for rule in RULES),
    *((f"time {rule}", {"seconds": 0.02, "turns": 9, "when_stuck": rule}, "time", rule) for rule in RULES),
    *((f"error {rule}", {"turns": 9, "when_stuck": rule}, "error", rule) for rule in RULES),
]
"""Id, settings, recorded cut and rule of each case."""


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("settings", "cut", "rule"), [pytest.param(*case, id=name) for name, *case in CUTS])
@pytest.mark.parametrize("waves", [True, False])
def test_every_cut_has_its_rule_and_nothing_is_generated_after_it(
    start: Path, settings: Any, cut: str, rule: str, waves: bool
) -> None:
    """No request begins with all tokens of an episode that has ended, for any cause."""
    asked: list[tuple[int, ...]] = []

    class Listening(TransformersEngine):
        def complete(self, requests: Any, drawing: TokenSampling) -> list[Generated]:
            asked.extend(tuple(ask.prompt) for ask in requests)
            return super().complete(requests, drawing)

        def serve(self, requests: Any, drawing: TokenSampling, steps: int, dropped: Any = ()) -> dict[int, Generated]:
            ask: CompletionRequest
            for ask in requests.values():
                asked.append(tuple(ask.prompt))
            return super().serve(requests, drawing, steps, dropped)

    def act(turn: str) -> None:
        if cut == "time" and "7" in turn:
            time.sleep(0.2)
        if cut == "error" and "7" in turn:
            raise RuntimeError("broken")

    engine = Listening(start, EngineSettings(precision="float32"), end=ENDING.ends)
    words = "3 + 4 5 6 7 8 9" if settings.get("max_tokens") == 20 else ""
    source = episodes(Chatter(lasts=9, act=act, words=words), waves=waves, **settings)
    made = source(make_resources(engine, codec=ENDING), PROBLEMS[:4], 0)
    ended = [rollout for rollout in made if rollout.episode.cut == cut]
    assert ended
    whole = {(*rollout.problem.tokens, *rollout.completion) for rollout in ended}
    assert not any(prompt[: len(ids)] == ids for prompt in asked for ids in whole)
    assert {bool(rollout.trained_tokens) for rollout in ended} == {rule != "masked"}
    assert {rollout.finished for rollout in ended} == {rule == "kept"}
    for rollout in ended:  # a verifier reads the answer only if the rule is `kept`
        right = replace(rollout, text="#### 7", problem=replace(rollout.problem, answer="7"))
        assert ExactAnswer()(make_resources(codec=ENDING), [right]).tolist() == [float(rule == "kept")]
    others = [rollout for rollout in made if not rollout.episode.cut]
    assert all(rollout.finished and rollout.trained_tokens == rollout.written_tokens for rollout in others)
