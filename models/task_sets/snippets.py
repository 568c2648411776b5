"""Lines of Python without an instruction: the policy predicts their output or error, or a missing value.

    prints : a = 3 ; a += 4 ; a *= 2 ; print ( a )                  7 ; 14 ; #### 14
    prints : a = 3 ; a += 4 ; a //= 0 ; print ( a )                 7 ; #### ZeroDivisionError
    missing : a = ? ; a += 4 ; a *= 2 ; print ( a ) # 14            14 ; 7 ; #### 3

Level 1 reasons forward, level 2 about errors, level 3 backward. The answer of a problem is one right value. Its tests
run the lines: any value for `?` is right if the lines then print the stated result. The flaws of demonstrations:
`guessed`, another value without a working; `slip`, a working followed by another value.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

SIGNS = {"+=": (1, 9), "-=": (1, 9), "*=": (2, 3)}
"""Smallest and largest number of a line, by its operator."""
FAILING = ("//=", "%=")
"""Operators that fail with zero on their right."""
START = (0, 9)
"""Smallest and largest first value."""
Line = tuple[str, int]


class SnippetsSettings(TaskSettings):
    """The section `snippets` of params.yaml."""

    states_answer: ClassVar[bool] = False
    guessed: Share
    """Share of the demonstrations that state another value without a working."""
    slip: Share
    """Share of the other demonstrations, except those of errors, that state another value after their working."""

    def draw(self, random: Random) -> Task:
        """Draw a first value, two lines that change it, and for an error one line that fails."""
        kind, name = random.choice(["forward", "error", "backward"]), random.choice("abn")
        start = random.randint(*START)
        signs = random.choices(list(SIGNS), k=2)
        lines = [(sign, random.randint(*SIGNS[sign])) for sign in signs]
        if kind == "error":
            lines.insert(random.randint(0, 2), (random.choice(FAILING), 0))
        said = " ; ".join(f"{name} {sign} {number}" for sign, number in lines)
        values = worked(start, lines)
        ends = "ZeroDivisionError" if kind == "error" else str(values[-1])
        if kind == "backward":
            prompt = f"missing : {name} = ? ; {said} ; print ( {name} ) # {ends}"
            back = [ends, *map(str, values[-2::-1])]
            shown, answer, level = " ; ".join([*back, f"#### {start}"]), str(start), 3
            tests = f"{snippet(name, name, said)}assert snippet(given()) == {ends}\n"
        else:
            prompt = f"prints : {name} = {start} ; {said} ; print ( {name} )"
            shown, answer = " ; ".join([*map(str, values), f"#### {ends}"]), ends
            level = 2 if kind == "error" else 1
            tests = f"{snippet('', str(start), said, name)}assert given() == snippet()\n"
        return Task(prompt, answer, level, (shown,), tests, "given")

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a guess, a working with a slip at the end, or a sound working."""
        if random.random() < self.guessed:
            other = random.choice([n for n in range(31) if str(n) != task.answer])
            return "guessed", (f"#### {other}",)
        if random.random() < self.slip and task.level != 2:
            (shown,) = task.steps
            off = int(task.answer) + random.choice([-2, -1, 1, 2])
            return "slip", (f"{shown.rpartition('####')[0]}#### {off}",)
        return SOUND, task.steps


def worked(start: int, lines: list[Line]) -> list[int]:
    """Return the value after each line, up to one that fails."""
    values: list[int] = []
    value = start
    for sign, number in lines:
        match sign:
            case "+=":
                value += number
            case "-=":
                value -= number
            case "*=":
                value *= number
            case _:
                return values
        values.append(value)
    return values


def snippet(parameter: str, first: str, said: str, name: str | None = None) -> str:
    """Return the code of a function that runs the lines and returns the value that they would print, or the name of
    the error."""
    name = name or parameter
    return (
        f"def snippet({parameter}):\n    {name} = {first}\n    try:\n        {said}\n"
        f"    except ArithmeticError as error:\n        return type(error).__name__\n    return {name}\n"
    )


SETTINGS = SnippetsSettings
