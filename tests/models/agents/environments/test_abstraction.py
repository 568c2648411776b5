"""An abstraction earns what it changes: success of the solver with it, less success without it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from models.agents.environments.abstraction import Abstraction
from models.agents.play.seated import play_seated
from models.agents.play.speakers import SpeakerModel
from models.base.errors import UserError
from models.base.images import reference_to
from models.base.pictures import png_of
from models.engines.engine import Sampling
from models.method.episode import Episode, EpisodeLimits
from models.method.problem import Problem
from models.parts.rollouts.episodes import as_rollout
from models.text.bridge import bridge_of
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_engines import Saying

CODEC = Codec(
    train_tokenizer(["1 2 3 4 + #### Hint: add up problem ask"], TokenizerSettings(kind="words", vocabulary=64))
)
PROBLEM = Problem("p", "problem 1 + 2", "3", 1, tuple(CODEC.prompts(["problem 1 + 2"])[0]))
LIMITS = EpisodeLimits(turns=1, turn_tokens=8, seconds=30.0, at_last_turn="kept", when_stuck="masked")
Speech = Callable[[list[str], int], str]


def played(speech: Speech, samples: int = 2, **settings: Any) -> tuple[list[Episode], Saying]:
    engine = Saying(CODEC, speech)
    voices = {"policy": SpeakerModel(engine, CODEC, bridge_of(CODEC))}
    environment = Abstraction(asks="ask", **settings)
    sampling = Sampling(max_tokens=24, samples=samples)
    (group,) = play_seated(voices, environment, LIMITS, [PROBLEM], sampling, 5)  # type: ignore[arg-type]
    return group, engine


def speaking(text: str, right_with: bool, right_without: bool) -> Speech:
    """Return a policy that writes `text` as the abstraction, and is right with it or without it."""

    def say(read: list[str], seed: int) -> str:
        if read[-1] == "ask":
            return text
        return f"#### {3 if (right_with if 'Hint:' in read else right_without) else 4}"

    return say


def rewards(group: list[Episode], seat: int) -> list[float]:
    return [sum(turn.reward for turn in episode.turns) for episode in group if episode.seat == seat]


@pytest.mark.parametrize(
    "right_with, right_without, writer",
    [(True, False, 1.0), (True, True, 0.0), (False, False, 0.0), (False, True, -1.0)],
)
def test_the_writer_earns_the_difference_and_the_solver_its_verdict(
    right_with: bool, right_without: bool, writer: float
) -> None:
    group, _ = played(speaking("add up", right_with, right_without))
    assert rewards(group, 0) == [writer] * 2 and rewards(group, 1) == [float(right_with)] * 2
    assert {episode.solved for episode in group} == {right_with}
    absolute, _ = played(speaking("add up", right_with, right_without), baseline=False)
    assert rewards(absolute, 0) == [float(right_with)] * 2


def test_each_seat_reads_its_own_text_and_only_two_of_them_learn() -> None:
    group, engine = played(speaking("add up", True, False), samples=1)
    read = sorted(CODEC.text([list(prompt) for prompt, _ in engine.asked]))
    assert read == ["problem 1 + 2", "problem 1 + 2 Hint: add up", "problem 1 + 2 ask"]
    trained = [CODEC.text([as_rollout(PROBLEM, 0, each, LIMITS).completion])[0] for each in group]
    assert trained == ["ask add up", "Hint: add up #### 3"]
    rollout = as_rollout(PROBLEM, 0, group[1], LIMITS)
    assert rollout.trained is not None and sum(rollout.trained) == 3  # two words and the end token
    assert Abstraction().learning == 2 and Abstraction(solutions=3).learning == 4


def test_success_is_a_mean_over_the_solutions() -> None:
    """With several solutions, some are right; each is a seat of its own and knows only its own verdict."""

    def say(read: list[str], seed: int) -> str:
        return "add up" if read[-1] == "ask" else f"#### {3 if seed % 3 else 4}"

    group, engine = played(say, samples=1, solutions=4)
    solved = [bool(episode.solved) for episode in group if episode.seat > 0]
    assert len(group) == 5 and len(engine.asked) == 9
    (writer,) = rewards(group, 0)
    assert (writer * 4) % 1 == 0 and -1 <= writer <= 1
    assert [rewards(group, seat) for seat in range(1, 5)] == [[float(each)] for each in solved]


def test_an_abstraction_with_the_answer_costs_and_is_not_read_where_leaks_are_refused() -> None:
    group, engine = played(speaking("3", True, False), leaks=False)
    assert rewards(group, 0) == [-1.0] * 2 and rewards(group, 1) == [0.0] * 2
    assert not any("Hint:" in text for text in CODEC.text([list(prompt) for prompt, _ in engine.asked]))


def test_evaluations_measure_one_solution_under_the_abstraction() -> None:
    environment = Abstraction(solutions=3).measured
    assert (environment.learning, environment.solutions, environment.baseline) == (1, 1, False)
    seats = environment.seats(PROBLEM)
    assert [seat.learns for seat in seats] == [False, True]
    assert [seat.learns for seat in Abstraction(learns="writer").measured.seats(PROBLEM)] == [True, False]


def test_lessons_are_a_step_of_the_solution_and_a_solution_after_it() -> None:
    environment = Abstraction(taught=True, between=" ; ", asks="ask")
    assert environment.lessons("d", "add", "1 + 2 = 3 ; 3 + 1 = 4 ; #### 4", True) == (
        ("add", "␞ask␞1 + 2 = 3"),
        ("add", "␞Hint: 1 + 2 = 3␞1 + 2 = 3 ; 3 + 1 = 4 ; #### 4"),
    )
    assert environment.lessons("d", "add", "#### 4", True) == ()
    assert environment.lessons("d", "add", "1 + 2 = 4 ; #### 4", False) == ()


def test_settings_and_problems_that_do_not_fit_are_refused_by_a_line() -> None:
    with pytest.raises(UserError, match=r"rollouts\.environment\.gives: 'Hint' must contain \{prepared\}"):
        Abstraction(gives="Hint")
    with pytest.raises(UserError, match="between is empty"):
        Abstraction(between="")
    with pytest.raises(UserError, match="problem p: it has no answer"):
        Abstraction().seats(Problem("p", "add", ""))
    with pytest.raises(UserError, match="several seats"):
        Abstraction().open(PROBLEM)


def test_a_solver_without_pictures_reads_the_abstraction_alone() -> None:
    """The words between both roles are all that the solver knows of a picture."""
    reference = reference_to(png_of(Image.new("RGB", (4, 4))))
    environment = Abstraction(hides_pictures=True, baseline=True, taught=True, between=" ", steps=2, gives="{prepared}")
    problem = replace(PROBLEM, prompt=f"{reference} problem 1 + 2")
    writer, solver, alone = environment.seats(problem)
    assert writer.prompt is None and solver.prompt == "problem 1 + 2" == alone.opened.reset(0)[0]
    assert environment.lessons("d", problem.prompt, "add up #### 3", True) == (
        (problem.prompt, "add up"),
        ("problem 1 + 2", "␞add up␞#### 3"),
    )
