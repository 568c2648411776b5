"""Free words in Kuhn poker: their clusters are its actions, and the game of the clusters has the known value."""

from collections.abc import Callable
from random import Random

import pytest

from models.agents.play.games.clusters import LatentGame, clustered
from models.agents.play.games.game import Knows, information_sets, knows, read_action, states
from models.agents.play.games.kuhn_poker import KuhnPoker
from models.agents.play.games.solving import action_values, regret_matching, value
from models.base.errors import UserError
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.rewards.episodes.source_value import SourceValue
from models.parts.rollouts.latent_space import LatentSpace
from models.parts.select.best_worst import BestWorst
from models.recipes.load import load_recipe
from models.task_sets.kuhn_talk import WAYS
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_engines import Saying
from tests.support.tiny_resources import make_resources

GAME = KuhnPoker()
PAIRS = ("check", "bet"), ("fold", "call")
PROMPT = "ada and bob play"
WORDS = " ".join([PROMPT, *WAYS, "jack queen king first second check bet fold call nonsense"]).replace("{}", "")
CODEC = Codec(train_tokenizer([WORDS], TokenizerSettings(kind="words", vocabulary=64)))
PROBLEM = Problem("p", PROMPT, "win", 1, tuple(CODEC.prompts([PROMPT])[0]))
Say = Callable[[list[str], int], str]


def talking(read: list[str], seed: int) -> str:
    random = Random(seed)
    return random.choice(WAYS).format(random.choice(PAIRS[read[-1] == "bet"]))


def played(say: Say = talking, samples: int = 200) -> list[Rollout]:
    source = LatentSpace(prompts=1, group_size=samples, max_tokens=40, turns=2, clusters=2)
    return source(make_resources(Saying(CODEC, say), codec=CODEC), [PROBLEM], 0)


def known_of(made: Rollout) -> str:
    """Return the state of the game at a turn: the seat and its card, then the words check and bet that it had read."""
    read = CODEC.text([made.problem.tokens[len(PROBLEM.tokens) :]])[0].split()
    return " ".join(read[:2] + [word for word in read[2:] if word in ("check", "bet")])


@pytest.mark.parametrize("actions", PAIRS)
def test_the_clusters_of_what_is_said_are_what_it_means_however_often_each_is_said(actions: tuple[str, str]) -> None:
    said = [way.format(action) for way in WAYS for action in actions]
    said += ["i " + actions[0]] * 3 + [actions[1] + " now"] * 2
    labels = clustered(said, 2)
    assert {(label, read_action(text, actions, free=True)) for text, label in zip(said, labels, strict=True)} in (
        {(0, actions[0]), (1, actions[1])},
        {(1, actions[0]), (0, actions[1])},
    )
    assert labels == clustered(said, 2)
    assert len(set(clustered(said, 100))) == len(set(said))


def test_regret_matching_on_the_game_of_the_clusters_comes_to_the_known_value() -> None:
    left: dict[tuple[str, ...], frozenset[str]] = {}
    for actions in PAIRS:
        said = [way.format(action) for way in WAYS for action in actions]
        clusters = clustered(said, 2)
        assert set(clusters) == {0, 1}
        left[actions] = frozenset(read_action(text, actions, free=True) for text in said)
    latent = LatentGame(GAME, left)
    assert information_sets(latent) == information_sets(GAME)
    assert value(latent, regret_matching(latent, 2000)) == pytest.approx((-1 / 18, 1 / 18), abs=2e-3)


def test_where_nobody_bets_the_game_of_the_clusters_has_no_bets() -> None:
    latent = LatentGame(GAME, {("check", "bet"): frozenset({"check"})})
    assert {action for state in states(latent) for action in latent.actions(state)} == {"check"}
    assert value(latent, regret_matching(latent, 1)) == (0.0, 0.0)


def test_in_an_equilibrium_no_action_is_worth_more_than_what_is_played() -> None:
    """The strategy is Kuhn's equilibrium with a = 1/3.

    By hand, the second seat has these values after a bet: fold -1, call with a jack -2, call with a queen 2 * 1/4 -
    2 * 3/4 = -1, call with a king 2.
    """
    first = {"first jack": (2 / 3, 1 / 3), "first queen": (1.0, 0.0), "first king": (0.0, 1.0)}
    again = {"first jack": (1.0, 0.0), "first queen": (1 / 3, 2 / 3), "first king": (0.0, 1.0)}
    checked = {"second jack": (2 / 3, 1 / 3), "second queen": (1.0, 0.0), "second king": (0.0, 1.0)}
    bet = {"second jack": (1.0, 0.0), "second queen": (2 / 3, 1 / 3), "second king": (0.0, 1.0)}
    profile: list[dict[Knows, tuple[float, float]]] = [{}, {}]
    for seat, behind, rows in (
        (0, (), first),
        (0, ("check", "bet"), again),
        (1, ("check",), checked),
        (1, ("bet",), bet),
    ):
        profile[seat].update({(card, *behind): row for card, row in rows.items()})
    values = action_values(GAME, profile)
    for strategy, of_seat in zip(profile, values, strict=True):
        for known, row in of_seat.items():
            played = [won for won, chance in zip(row, strategy[known], strict=True) if chance > 0]
            assert played == pytest.approx([max(row)] * len(played), abs=1e-12)
    assert [values[1][f"second {card}", "bet"] for card in ("jack", "queen", "king")] == [
        pytest.approx(row) for row in ((-1.0, -2.0), (-1.0, -1.0), (-1.0, 2.0))
    ]
    assert sum(max(values[0][f"first {card}",]) for card in ("jack", "queen", "king")) / 3 == pytest.approx(-1 / 18)


@pytest.mark.rotating(of=6)
def test_the_pairs_prefer_the_higher_counterfactual_value_behind_the_same_history() -> None:
    made = played()
    rewards = SourceValue()(make_resources(codec=CODEC), made)
    kept = BestWorst(tolerance=0.05)(Scored(made, rewards, {}, {})).tolist()
    pairs = [(made[better], made[worse]) for better, worse in zip(kept[::2], kept[1::2], strict=True)]
    values = {
        " ".join(known): row
        for of_seat in action_values(GAME, regret_matching(GAME, 500))
        for known, row in of_seat.items()
    }
    actions = {" ".join(knows(GAME, state, int(GAME.mover(state) or 0))): GAME.actions(state) for state in states(GAME)}
    preferred = set()
    for better, worse in pairs:
        assert better.problem.tokens == worse.problem.tokens and better.group == worse.group
        known = known_of(better)
        worth = dict(zip(actions[known], values[known], strict=True))
        names = [read_action(each.text, actions[known], free=True) for each in (better, worse)]
        assert worth[names[0]] - worth[names[1]] > 0.05
        assert [better.source.value, worse.source.value] == pytest.approx([worth[name] for name in names])
        preferred.add((known, names[0]))
    sure = {("second king bet", "call"), ("second jack bet", "fold"), ("first king check bet", "call")}
    assert sure <= preferred


def test_a_turn_alone_is_the_turn_of_its_episode_behind_all_that_stood_before_it() -> None:
    engine = Saying(CODEC, talking)
    source = LatentSpace(prompts=1, group_size=20, max_tokens=40, turns=2)
    made = source(make_resources(engine, codec=CODEC), [PROBLEM], 0)
    assert sorted((tuple(each.problem.tokens), each.completion) for each in made) == sorted(engine.asked)
    assert all(each.episode.history == len(each.problem.tokens) - len(PROBLEM.tokens) for each in made)


def test_what_is_no_action_is_worth_the_worst_of_the_game() -> None:
    made = played(lambda read, seed: "nonsense" if seed % 2 else talking(read, seed), samples=40)
    assert {each.source.value for each in made if each.text == "nonsense"} == {GAME.least}
    assert all(
        each.source.value != GAME.least for each in made if each.text != "nonsense" and known_of(each)[-3:] != "bet"
    )


@pytest.mark.parametrize("environment", ["{name: grid_walk}", "{name: table, game: tic_tac_toe}"])
def test_an_environment_that_is_no_game_or_a_large_one_is_refused(environment: str) -> None:
    with pytest.raises(UserError, match="latent_space needs environment"):
        load_recipe("lspo", (f"rollouts.environment={environment}",))
