"""Functions of a small number, described in words, for which tests are to be written.

    test f ( x ) : add 3 , at most 5        assert f ( 3 ) == 5 ; assert f ( 0 ) == 3

The answer of a problem is the right function, one statement a line; its tests check all inputs. Only values above the
limit distinguish `at most 5` from `at most 6` or from no limit. If the comparison alone is off by one, only the value
just above the limit does. The flaws of demonstrations: `broken`, not Python; `wrong`, another result; and smells:
`alike`, one assertion twice; `idle`, an assertion that always holds; `printing`, a value printed and not asserted;
`conditional`, an assertion under a condition.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.programs import Step, Verb, described, result, steps_of

INPUTS = range(10)
"""Arguments of the assertions in a demonstration; the tests of a problem use all of them."""
LINES: dict[Verb, tuple[str, ...]] = {
    "add": ("x += {}",),
    "take": ("x -= {}",),
    "times": ("x *= {}",),
    "least": ("if x < {}:", "    x = {}"),
    "most": ("if x > {}:", "    x = {}"),
}
"""Code of each step, one statement a line."""
NUMBERS: dict[Verb, tuple[int, int]] = {
    "add": (1, 12),
    "take": (1, 12),
    "times": (2, 4),
    "least": (3, 7),
    "most": (2, 6),
}
"""Smallest and largest number of a step."""


class AssertionsSettings(TaskSettings):
    """The section `assertions` of params.yaml."""

    states_answer: ClassVar[bool] = False
    broken: Share
    """Share of the demonstrations that are not Python."""
    wrong: Share
    """Share of the others that state a wrong result."""
    smelly: Share
    """Share of the remaining demonstrations that have a smell."""

    def draw(self, random: Random) -> Task:
        """Draw a function of one or two steps."""
        said = random.sample(list(LINES), random.randint(1, 2))
        steps = [(verb, random.randint(*NUMBERS[verb])) for verb in said]
        lines = [line.format(number) for verb, number in steps for line in LINES[verb]]
        answer = "\n    ".join(["def f(x):", *lines, "return x"])
        results = [result(steps, given) for given in INPUTS]
        tests = f"for given, value in enumerate({results}):\n    assert f(given) == value\n"
        prompt = f"test f ( x ) : {described(steps)}"
        sound = " ; ".join(map(_assertion, INPUTS, results))
        return Task(prompt, answer, len(steps), (sound,), tests, "f")

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration of two assertions, with a flaw or without."""
        steps = read(task.prompt)
        first, second = (_assertion(given, result(steps, given)) for given in random.sample(INPUTS, 2))
        if random.random() < self.broken:
            words = f"{first} ; {second}".split()
            words.remove(random.choice(["(", ")"]))
            return "broken", (" ".join(words),)
        if random.random() < self.wrong:
            given = random.choice(INPUTS)
            off = result(steps, given) + random.choice([-2, -1, 1, 2])
            return "wrong", (f"{first} ; {_assertion(given, off)}",)
        if random.random() < self.smelly:
            given = random.choice(INPUTS)
            smells = {
                "alike": f"{first} ; {first}",
                "idle": f"{first} ; assert f ( {given} ) == f ( {given} )",
                "printing": f"print ( f ( {given} ) ) ; {first}",
                "conditional": f"{first} ; {second} if f ( {given} ) else True",
            }
            smell = random.choice(list(smells))
            return smell, (smells[smell],)
        return SOUND, (f"{first} ; {second}",)


def read(prompt: str) -> list[Step]:
    """Return the steps that a prompt describes."""
    return steps_of(prompt.partition(" : ")[2])


def _assertion(given: int, value: int) -> str:
    return f"assert f ( {given} ) == {value}"


SETTINGS = AssertionsSettings
