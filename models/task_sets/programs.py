"""Functions of a whole number, of two or three steps each, to be written in Python on one line.

    def f ( x ) : " add 3 , times 4 " ;        x += 3 ; x *= 4 ; return x

A prompt is the head of the function, and the completion is its body. The flaws of demonstrations: `slow`, some step is
done by a loop that counts; `wrong`, one step has another number, or is left out. The answer of a problem is the whole
sound function; its tests are three cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

Verb = Literal["add", "take", "times", "least", "most"]
Step = tuple[Verb, int]
QUICK: dict[Verb, str] = {
    "add": "x += {}",
    "take": "x -= {}",
    "times": "x *= {}",
    "least": "x = max ( x , {} )",
    "most": "x = min ( x , {} )",
}
"""Code of a step."""
SLOW: dict[Verb, str] = {
    "add": "x += sum ( 1 for i in range ( {} ) )",
    "take": "x -= sum ( 1 for i in range ( {} ) )",
    "times": "x = sum ( x for i in range ( {} ) )",
}
"""Code of a step as a loop, for the verbs that have one."""
SAID: dict[Verb, str] = {
    "add": "add {}", "take": "take {}", "times": "times {}", "least": "at least {}", "most": "at most {}",
}  # fmt: skip
INPUTS = (-7, 2, 30)
"""Arguments of the tests."""


class ProgramsSettings(TaskSettings):
    """The section `programs` of params.yaml."""

    states_answer: ClassVar[bool] = False
    wrong: Share
    """Share of the demonstrations with a mistake."""
    slow: Share
    """Share of the steps that are done by a loop, among those that can be."""

    def draw(self, random: Random) -> Task:
        """Draw a function of two or three steps, each with its own number."""
        steps = drawn_steps(random)
        head = f'def f ( x ) : " {described(steps)} " ;'
        body = written([QUICK[verb].format(number) for verb, number in steps])
        return Task(head, f"{head} {body}", len(steps), (body,), cases(steps), "f")

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a program with a mistake, one with loops, or the sound one."""
        steps = read(task.prompt)
        wrong = random.random() < self.wrong
        if wrong:
            place = random.randrange(len(steps))
            verb, number = steps[place]
            other = random.choice([n for n in range(2, 10) if n != number])
            steps[place : place + 1] = [(verb, other)] if random.random() < 0.7 else []
        looped = [verb in SLOW and random.random() < self.slow for verb, _ in steps]
        lines = [(SLOW if loop else QUICK)[verb].format(n) for (verb, n), loop in zip(steps, looped, strict=True)]
        return "wrong" if wrong else "slow" if any(looped) else SOUND, (written(lines),)


def drawn_steps(random: Random) -> list[Step]:
    """Draw two or three steps with different verbs, each with its own number."""
    return [(verb, random.randint(2, 9)) for verb in random.sample(list(QUICK), random.randint(2, 3))]


def cases(steps: Sequence[Step]) -> str:
    """Return the tests of a function."""
    return "".join(f"assert f({given}) == {result(steps, given)}\n" for given in INPUTS)


def written(lines: Sequence[str]) -> str:
    """Return the body of a function: the lines of its steps and the return."""
    return " ; ".join([*lines, "return x"])


def result(steps: Sequence[Step], x: int) -> int:
    """Apply the steps to a number."""
    for verb, number in steps:
        match verb:
            case "add":
                x += number
            case "take":
                x -= number
            case "times":
                x *= number
            case "least":
                x = max(x, number)
            case "most":
                x = min(x, number)
    return x


def described(steps: Sequence[Step]) -> str:
    """Describe steps in words."""
    return " , ".join(SAID[verb].format(number) for verb, number in steps)


def steps_of(words: str) -> list[Step]:
    """Parse the steps from their description in words."""
    verbs: dict[str, Verb] = {said.removesuffix(" {}"): verb for verb, said in SAID.items()}
    said = [step.rsplit(" ", 1) for step in words.strip().split(" , ")]
    return [(verbs[verb], int(number)) for verb, number in said]


def read(prompt: str) -> list[Step]:
    """Parse the steps that a prompt describes."""
    return steps_of(prompt.split('"')[1])


SETTINGS = ProgramsSettings
