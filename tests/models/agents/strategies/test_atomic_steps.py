"""Strategy `atomic_steps`: repeated steps are drawn again at rising temperatures; other turns are the policy's own."""

from collections.abc import Callable, Sequence

import pytest

from models.agents.strategies.atomic_steps import AtomicSteps
from models.agents.strategies.plain import Plain
from models.agents.strategy import Strategic
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from tests.support.tiny_strategies import BYTES, DRAWN, GREEDY, Scripted, ask_of, read, turns_of


class Writer(Scripted):
    """A policy that continues a text at a temperature, and stops at stop ids. It records the temperatures."""

    def __init__(self, continued: Callable[[str, float], str]) -> None:
        super().__init__()
        self.continued, self.temperatures = continued, list[float]()

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = []
        for request in requests:
            self.temperatures.append(round(drawing.temperature, 3))
            ids = BYTES.completions([self.continued(read(request.prompt).partition("Q")[2], drawing.temperature)])[0]
            stop = next((at for at, token in enumerate(ids) if token in request.stops or token in BYTES.ends), 0)
            whole = tuple(ids[: stop + 1])
            made.append(Generated(whole[: request.max_tokens], None, len(whole) <= request.max_tokens))
        return made


def loop(text: str, temperature: float) -> str:
    """Repeat the step `a` forever, unless the temperature is at least 0.8."""
    return "b; #### 7" if temperature > 0.79 else "a; " * 30


@pytest.mark.parametrize("drawing", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_turn_without_repeated_steps_is_the_policys_own(drawing: TokenSampling) -> None:
    whole = "x is 3; y is 4; \n#### 7"
    writer = Writer(lambda text, temperature: whole[len(text) :])
    turns, counted = turns_of(AtomicSteps(), writer, [ask_of("Q"), ask_of("Q", 1)], drawing)
    assert turns == turns_of(Plain(), writer, [ask_of("Q"), ask_of("Q", 1)], drawing)[0]
    assert counted.spent.calls == 2 * 4 and set(writer.temperatures) == {drawing.temperature}


def test_a_loop_is_left_by_a_warmer_step_and_the_next_step_is_drawn_as_before() -> None:
    writer = Writer(lambda text, temperature: "#### 7" if "b" in text else loop(text, temperature))
    turns, counted = turns_of(AtomicSteps(), writer, [ask_of("Q")])
    assert turns == ["a;b;#### 7"]
    assert writer.temperatures == [0.0, 0.0, 0.4, 0.8, 0.0] and counted.spent.calls == 5


def test_after_the_last_redraw_the_repeated_step_is_kept() -> None:
    strategy = AtomicSteps(redraws=1, steps=3)
    turns, counted = turns_of(strategy, Writer(loop), [ask_of("Q", max_tokens=400)])
    assert turns == ["a;" + "a;" + "a; " * 30]  # the last step is drawn to the end
    assert counted.spent.calls == 1 + 2 + 1 <= strategy.most_calls == 6


def test_without_redraws_nothing_is_drawn_again() -> None:
    turns, counted = turns_of(AtomicSteps(redraws=0, steps=4), Writer(loop), [ask_of("Q", max_tokens=400)])
    assert counted.spent.calls == 4 and turns[0].startswith("a;a;a;a; a;")


def test_a_turn_that_is_cut_has_not_ended() -> None:
    writer = Writer(lambda text, temperature: "x is 3; y is 4; #### 7"[len(text) :])
    strategic = Strategic(writer, BYTES, AtomicSteps(), 4096)
    (cut,) = strategic.complete([ask_of("Q", max_tokens=10)], GREEDY)
    assert BYTES.text([cut.tokens]) == ["x is 3; y "] and not cut.finished


def test_marks_without_a_token_are_refused() -> None:
    with pytest.raises(UserError, match="an empty text would end a step after each token"):
        AtomicSteps(marks=("", ";"))
