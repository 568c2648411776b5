"""Tests of a table: each seat has its own view, chance depends on the seed, rewards are given at the last turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import pytest
import torch

from models.agents.environments.table import Table, fixed_strategy
from models.agents.play.games.kuhn_poker import KuhnPoker
from models.agents.play.games.solving import exploitability
from models.agents.play.games.strategy import choices, strategies
from models.agents.play.play import play
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling, TokenSampling
from models.method.environment import Environment, EnvironmentAnswer, EpisodeSettings, Seat
from models.method.episode import Cut, Episode, EpisodeLimits
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import as_rollout
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_engines import Saying

CARDS = "jack queen king".split()
ACTIONS = "check bet fold call".split()
FIELDS = [f"{column}{row}" for row in "123" for column in "abc"]
TOKENIZER = train_tokenizer(
    [" ".join(["ada and bob play", *CARDS, *ACTIONS, "first second x o nonsense", *FIELDS])],
    TokenizerSettings(kind="words", vocabulary=64),
)
CODEC = Codec(TOKENIZER)
PROBLEMS = [
    Problem(f"p{number}", text, "win", 1, tuple(CODEC.prompts([text])[0]))
    for number, text in enumerate(["ada and bob play", "bob and ada play"])
]
LIMITS = EpisodeLimits(turns=5, turn_tokens=None, seconds=10.0, at_last_turn="kept", when_stuck="masked")


def at_random(read: list[str], seed: int) -> str:
    """Return a legal action, drawn with the seed."""
    if read[-1] in ("x", "o") or read[-1] in FIELDS:
        return Random(seed).choice([field for field in FIELDS if field not in read])
    return Random(seed).choice(["fold", "call"] if read[-1] == "bet" else ["check", "bet"])


def saying(say: Callable[[list[str], int], str] = at_random) -> Saying:
    return Saying(CODEC, say)


def played(
    environment: Environment, engine: Engine | None = None, samples: int = 40, seed: int = 3
) -> list[list[Episode]]:
    settings = EpisodeSettings(environment=environment, limits=LIMITS, role="user")
    return play(engine or saying(), CODEC, settings, PROBLEMS, Sampling(max_tokens=40, samples=samples), seed)


def words(episode: Episode) -> list[str]:
    return str(CODEC.tokenizer.decode(list(episode.tokens))).split()


def test_every_game_gives_a_rollout_for_each_seat_and_what_the_seats_win_sums_to_zero() -> None:
    for episodes in played(Table()):
        assert [episode.seat for episode in episodes] == [0] * 40 + [1] * 40
        for first, second in zip(episodes[:40], episodes[40:], strict=True):
            assert first.reward == -second.reward != 0
            assert first.solved is (first.reward > 0)
            assert all(turn.reward == 0 for turn in first.turns[:-1])


def test_a_card_is_in_no_tokens_but_its_own_seats() -> None:
    for episodes in played(Table()):
        for first, second in zip(episodes[:40], episodes[40:], strict=True):
            mine, other = ([word for word in words(each) if word in CARDS] for each in (first, second))
            assert len(mine) == len(other) == 1 and mine != other
            assert next(word for word in words(first) if word in ACTIONS) == first.turns[0].text


def test_all_deals_are_played_and_the_states_of_turns_are_the_information_sets() -> None:
    episodes = [each for group in played(Table()) for each in group]
    states = {turn.state for episode in episodes for turn in episode.turns}
    assert states == {" ".join(choice.known) for choice in choices(KuhnPoker(), CODEC, PROBLEMS[0])}
    assert len(states) == 12


def test_the_next_asks_ids_of_a_seat_begin_with_all_that_it_read_and_said() -> None:
    engine = saying()
    episodes = [each for group in played(Table(), engine) for each in group]
    whole = {(*episode.prompt, *episode.tokens) for episode in episodes}
    for prompt, said in engine.asked:
        assert any(ids[: len(prompt) + len(said)] == (*prompt, *said) for ids in whole)


@pytest.mark.rotating(of=6)
def test_a_strategy_is_read_in_the_very_tokens_in_which_it_is_played() -> None:
    asked = choices(KuhnPoker(), CODEC, PROBLEMS[0])
    behind = {choice.rollout.completion for choice in asked}
    for episode in played(Table(), samples=200)[0]:
        for turn in episode.turns:
            assert episode.tokens[: turn.stop] in behind
    assert len(behind) == 24


def test_the_strategy_that_is_read_is_the_policys_chance_of_each_action_over_their_sum() -> None:
    def log_probs(rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
        rows = []
        for rollout in rollouts:
            (turn,) = rollout.episode.turns
            row = torch.full((len(rollout.completion),), -9.0)
            row[turn.start :] = 0.0
            row[turn.start] = {"bet": -0.5, "call": -0.5}.get(CODEC.text([rollout.completion[turn.start :]])[0], -1.5)
            rows.append(row)
        return rows

    asked = choices(KuhnPoker(), CODEC, PROBLEMS[0])
    raised = 1 / (1 + torch.tensor(-1.0).exp().item())
    for of_seat in strategies(KuhnPoker(), asked, log_probs):
        assert len(of_seat) == 6
        assert all(row == pytest.approx((1 - raised, raised)) for row in of_seat.values())


@pytest.mark.rotating(of=6)
def test_the_same_seed_plays_the_same_games_and_another_others() -> None:
    first, again, other = (
        [each.tokens for group in played(Table(), seed=seed) for each in group] for seed in (5, 5, 6)
    )
    assert first == again != other


def test_a_turn_that_is_no_action_costs_the_worst_of_the_game() -> None:
    for episodes in played(Table(), saying(lambda read, seed: "nonsense")):
        assert [(each.seat, each.reward, each.solved) for each in episodes] == [(0, -2.0, False)] * 40


def test_against_a_fixed_strategy_the_policy_plays_either_seat_and_alone_learns() -> None:
    episodes = [each for group in played(Table(others="uniform")) for each in group]
    assert len(episodes) == 80
    first = [words(episode)[0] for episode in episodes]
    assert 20 < first.count("first") < 60 and set(first) == {"first", "second"}
    assert Table().measured.learning == 1 and Table().learning == 2


def test_the_solved_opponent_can_hardly_be_exploited() -> None:
    assert exploitability(KuhnPoker(), fixed_strategy("kuhn_poker", "solved")) < 0.01


def test_tic_tac_toe_is_played_to_its_end_by_turns() -> None:
    for episodes in played(Table(game="tic_tac_toe"), samples=10):
        for first, second in zip(episodes[:10], episodes[10:], strict=True):
            said = [turn.text for turn in first.turns], [turn.text for turn in second.turns]
            assert len(said[0]) - len(said[1]) in (0, 1) and not set(said[0]) & set(said[1])
            assert first.reward == -second.reward


def test_a_rollout_of_a_seat_trains_on_its_own_turns_alone() -> None:
    for episode in played(Table())[0]:
        rollout = as_rollout(PROBLEMS[0], episode.seat, episode, LIMITS)
        assert rollout.trained is not None
        trained = [token for token, own in zip(rollout.completion, rollout.trained, strict=True) if own]
        own = [turn.text for turn in episode.turns]
        assert trained == [token for ids in CODEC.completions(own) for token in ids]


def test_several_seats_at_their_own_pace_are_refused_by_a_line() -> None:
    settings = EpisodeSettings(environment=Table(), limits=LIMITS, role="user", waves=False)
    with pytest.raises(UserError, match=r"rollouts\.waves is false, but environment table has several seats"):
        play(saying(), CODEC, settings, PROBLEMS, Sampling(max_tokens=40), 0)


class Cutting(Saying):
    """An engine that cuts one turn in four, depending on the seed."""

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = super().complete(requests, drawing)
        return [replace(each, finished=ask.seed % 4 > 0) for ask, each in zip(requests, made, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Failing(Table):
    """A table that fails at `bet`, or answers it too late."""

    name = "failing"
    cut: Cut = "error"

    def seats(self, problem: Problem) -> Sequence[Seat]:
        seats = super().seats(problem)
        for seat in seats:
            view: Any = seat.opened
            real = view.step

            def step(turn: str, real: Callable[[str], EnvironmentAnswer | None] = real) -> EnvironmentAnswer | None:
                if turn == "bet" and self.cut == "time":
                    time.sleep(0.3)
                if turn == "bet" and self.cut == "error":
                    raise RuntimeError("the table broke")
                return real(turn)

            view.step = step
        return seats


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("cut", "limits", "rule"),
    [
        ("tokens", {}, "wrong"),
        ("turns", {"turns": 1, "at_last_turn": "wrong"}, "wrong"),
        ("turns", {"turns": 1, "at_last_turn": "masked"}, "masked"),
        ("error", {"when_stuck": "masked"}, "masked"),
        ("error", {"when_stuck": "wrong"}, "wrong"),
        ("time", {"when_stuck": "masked", "seconds": 0.1}, "masked"),
    ],
)
def test_where_a_seat_is_cut_the_others_are_too_and_nobody_is_asked_again(cut: Cut, limits: Any, rule: str) -> None:
    engine, of_seats = (Cutting if cut == "tokens" else Saying)(CODEC, at_random), replace(LIMITS, **limits)
    environment = Failing(cut=cut) if cut in ("error", "time") else Table()
    settings = EpisodeSettings(environment=environment, limits=of_seats, role="user")
    texts = [" ".join(words) for words in product(("ada", "and", "bob", "play"), repeat=3)]
    problems = [  # different texts, so that no two games have the same tokens
        Problem(text, text, "win", 1, tuple(CODEC.prompts([text])[0])) for text in texts[: 4 if cut == "time" else 40]
    ]
    made = play(engine, CODEC, settings, problems, Sampling(max_tokens=40, samples=1), 3)
    ended = [(problem, each) for problem, seats in zip(problems, made, strict=True) for each in seats if each.cut]
    assert ended and {each.cut for _, each in ended} == {cut}
    whole = {(*problem.tokens, *each.tokens) for problem, each in ended}
    assert not any(prompt[: len(ids)] == ids for prompt, _ in engine.asked for ids in whole)
    for problem, each in ended:
        rollout = as_rollout(problem, 0, each, of_seats)
        assert bool(rollout.trained_tokens) == (rule != "masked") and not rollout.finished
