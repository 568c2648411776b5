"""The rollouts `corrected`: corrections of thoughts in the states that episodes have reached, imitated by `chord`."""

import pytest
import torch

from models.agents.environments.grid_walk import GridWalk
from models.learner.packing import Sequences
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode, sequences_of
from models.method.scored import Scored
from models.parts.advantage.among_samples import AmongSamples
from models.parts.rollouts.corrected import Corrected
from models.parts.rollouts.episodes import Episodes
from tests.support.tiny_resources import CODEC, make_resources

WORLD = GridWalk(thoughts=("think",))
TASKS = [Problem(f"task {number}", "A.G", '{"grid": ["A.G"]}', tokens=(5, 6, number)) for number in range(2)]


def episode(problem: Problem, group: int, thoughts: list[tuple[str, str]]) -> Rollout:
    """Return an episode of thoughts, each with its correction, and moves; turns have three tokens, answers two."""
    turns, tokens = list[Turn](), list[int]()
    for thought, correction in thoughts:
        for text, right in ((thought, correction), ("r", "")):
            if turns:
                tokens += [90, 91]
            turns.append(Turn(len(tokens), len(tokens) + 3, text=text, correction=right))
            tokens += [10 + len(turns), 20 + len(turns), 3]
    played = RolloutEpisode(turns=tuple(turns), solved=True)
    return Rollout(problem, group, tuple(tokens), torch.zeros(len(tokens)), "", True, episode=played)


def corrections(monkeypatch: pytest.MonkeyPatch, source: Corrected, played: list[Rollout]) -> list[Rollout]:
    monkeypatch.setattr(Episodes, "__call__", lambda *_: played)
    return source(make_resources(), TASKS, 0)


PLAYED = [
    episode(TASKS[0], 0, [("2r", "2r"), ("here", "1r")]),
    episode(TASKS[0], 0, [("1r", "2r"), ("2r ", "1r"), ("1r", "1r")]),
    episode(TASKS[1], 1, [("2r\n", "2r")]),
]


def test_wrong_thoughts_are_corrected_after_the_history_of_their_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    made = corrections(monkeypatch, Corrected(environment=WORLD), PLAYED)
    assert made[:2] == PLAYED[:2] and made[-1] == PLAYED[2] and len(made) == 6
    assert [rollout.group for rollout in made] == [0, 0, 0, 0, 0, 1]
    expected = [(PLAYED[0], 2, "1r"), (PLAYED[1], 0, "2r"), (PLAYED[1], 2, "1r")]
    for correction, (played, turn, text) in zip(made[2:5], expected, strict=True):
        before = played.completion[: played.episode.turns[turn].start]
        assert correction.problem.tokens == (*played.problem.tokens, *before)
        assert correction.episode.history == len(before) and correction.source.origin == "demonstration"
        assert correction.completion == tuple(CODEC.completions([text])[0]) and correction.trained is None
        assert correction.behaviour_log_probs is None and correction.problem.id == played.problem.id


def test_all_thoughts_are_corrections_if_requested_and_the_first_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Corrected(environment=WORLD, only_wrong=False, corrections=2, group_size=2)
    made = corrections(monkeypatch, source, PLAYED)
    texts = [rollout.text for rollout in made if rollout.source.origin == "demonstration"]
    assert texts == ["2r", "1r", "2r", "1r", "2r"] and source.largest_group() == 6


def test_a_correction_is_read_as_the_same_tokens_after_the_same_history(monkeypatch: pytest.MonkeyPatch) -> None:
    made = corrections(monkeypatch, Corrected(environment=WORLD), PLAYED[:1])
    read = sequences_of(made)
    alone = Sequences([made[1].problem.tokens], [made[1].completion])
    assert [*read.prompts[1], *read.completions[1]] == [*alone.prompts[0], *alone.completions[0]]
    assert read.prompts[1][: len(read.prompts[0])] == read.prompts[0]


def test_corrections_do_not_move_the_baseline_of_the_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = corrections(monkeypatch, Corrected(environment=WORLD), PLAYED[:2])
    rewards = torch.tensor([1.0, 0.0, *[0.0] * (len(made) - 2)])
    scored = Scored(made, rewards, {}, {})
    advantage = AmongSamples().of_completions(make_resources(), scored)
    alone = AmongSamples().of_completions(make_resources(), Scored(PLAYED[:2], rewards[:2], {}, {}))
    torch.testing.assert_close(advantage[:2], alone)
    assert not advantage[2:].any() and advantage[:2].any()
