"""Talk in a game of hidden roles: a message is worth its change of the others' beliefs, as computed by hand."""

from dataclasses import replace
from math import log
from random import Random

import pytest

from models.agents.play.games.game import known_state, knows, states
from models.agents.play.games.mole import Mole
from models.agents.play.games.strategy import view
from models.base.errors import UserError
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rollouts.believed import Believed
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_engines import Saying
from tests.support.tiny_resources import make_resources

GAME = Mole()
PROMPT = "ada , bob and cem look for the mole"
CODEC = Codec(
    train_tokenizer([f"{PROMPT} red blue green saw crew pass vote"], TokenizerSettings(kind="words", vocabulary=64))
)
PROBLEM = Problem("p", PROMPT, "red blue", 1, tuple(CODEC.prompts([PROMPT])[0]))
LINES = {"red": ("saw green", "vote green"), "blue": ("saw red", "vote red"), "green": ("pass", "vote red")}
"""Red is the mole, blue saw it, green believes blue."""


def behind(read: list[str]) -> str:
    return " ".join(read[len(PROMPT.split()) :])


def by_lines(read: list[str], seed: int) -> str:
    _, state = known_state(GAME, PROBLEM.answer, behind(read))
    return LINES[read[len(PROMPT.split())]][len(state) > GAME.seats]


def weight(read: list[str], said: list[str]) -> float:
    """Return the weight of accusing a name: 1, plus 1 for each message that reports having seen it."""
    return 1 + behind(read).count(f"saw {said[1]}")


def played(say: object = by_lines, problem: Problem = PROBLEM, samples: int = 1, **settings: float) -> list[Rollout]:
    source = Believed(prompts=1, group_size=samples, max_tokens=40, turns=2, **settings)  # type: ignore[arg-type]
    return source(make_resources(Saying(CODEC, say, weight), codec=CODEC), [problem], 0)  # type: ignore[arg-type]


def test_a_message_is_worth_the_change_of_the_others_log_probability_of_the_truth() -> None:
    """The expected values are computed by hand.

    Red's message lowers blue's belief from 2/3 to 1/2 and leaves green's at 1/2. Blue's message raises green's
    belief from 1/2 to 2/3. Green's message changes nothing. The mole is caught: each of the crew gets 1, the mole
    gets -2, and a right vote gets 1.
    """
    red, blue, green = ([turn.reward for turn in rollout.episode.turns] for rollout in played())
    assert red == pytest.approx([-log((1 / 2) / (2 / 3)), -2.0])
    assert blue == pytest.approx([log((2 / 3) / (1 / 2)), 1.0 + 1.0])
    assert green == pytest.approx([0.0, 1.0 + 1.0])


def test_speaking_and_listening_weigh_their_rewards_alone() -> None:
    silent, loud = (
        [[turn.reward for turn in rollout.episode.turns] for rollout in played(speaking=speaking, listening=0.5)]
        for speaking in (0.0, 2.0)
    )
    assert silent == [[0.0, -2.0], [0.0, 1.5], [0.0, 1.5]]
    assert loud[1] == pytest.approx([2 * log(4 / 3), 1.5])


def test_what_is_no_message_changes_no_belief() -> None:
    made = played(lambda read, seed: "mole")
    assert [[turn.reward for turn in rollout.episode.turns] for rollout in made] == [[-2.0]]


@pytest.mark.rotating(of=6)
def test_beliefs_are_asked_for_behind_the_very_tokens_in_which_a_seat_plays() -> None:
    def anything(read: list[str], seed: int) -> str:
        return Random(seed).choice(GAME.actions(known_state(GAME, PROBLEM.answer, behind(read))[1]))

    made = played(anything, samples=30)
    assert len(made) == 90
    for rollout in made:
        for turn in rollout.episode.turns:
            seat, state = known_state(GAME, PROBLEM.answer, turn.state)
            assert view(GAME, CODEC, state, seat) == rollout.completion[: turn.start]


def test_what_a_seat_knows_tells_seat_and_state_where_the_deal_is_known() -> None:
    for state in states(GAME):
        seat = GAME.mover(state)
        assert seat is not None
        assert known_state(GAME, state[0], " ".join(knows(GAME, state, seat))) == (seat, state)


def test_an_environment_without_hidden_roles_and_a_problem_without_a_deal_are_refused_by_a_line() -> None:
    with pytest.raises(UserError, match=r"needs environment: .* a game of hidden roles"):
        load_recipe("social_deduction", ("rollouts.environment={name: table, game: kuhn_poker}",))
    with pytest.raises(UserError, match="problem p: the answer 'win' is not a deal of mole"):
        played(problem=replace(PROBLEM, answer="win"))
