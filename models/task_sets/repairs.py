"""Functions with one wrong step, which is to be explained and then repaired.

    repair f ( x ) : " add 3 , times 4 " ; x += 3 ; x *= 5 ; return x
        step 2 must be times 4 | fix: | def f ( x ) : x += 3 ; x *= 4 ; return x

The functions are those of `programs`; a step has another number, or is left out. The answer of a problem is the
explanation; its tests are cases of the function that the prompt describes. The flaws of demonstrations: `misread`, a
wrong explanation and the unchanged program; `kept`, the right explanation and the unchanged program.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.programs import INPUTS, QUICK, Step, cases, described, drawn_steps, result, written

SAYS = "fix:"
"""Text between the turns, as the environment `explained_repair` has it by default."""


class RepairsSettings(TaskSettings):
    """The section `repairs` of params.yaml."""

    states_answer: ClassVar[bool] = False
    misread: Share
    """Share of the demonstrations that give a wrong explanation."""
    kept: Share
    """Share of the other demonstrations that write the wrong program again."""

    def draw(self, random: Random) -> Task:
        """Draw a function and a wrong version, which gives another result in some case."""
        steps = drawn_steps(random)
        while True:
            place, missing = random.randrange(len(steps)), random.random() < 0.3
            verb, number = steps[place]
            other: list[Step] = [] if missing else [(verb, random.choice([n for n in range(2, 10) if n != number]))]
            wrong = [*steps[:place], *other, *steps[place + 1 :]]
            if any(result(wrong, x) != result(steps, x) for x in INPUTS):
                break
        prompt = f'repair f ( x ) : " {described(steps)} " ; {quick(wrong)}'
        explained = explanation(place, steps[place], missing)
        return Task(prompt, explained, len(steps), (explained, SAYS, whole(quick(steps))), cases(steps), "f")

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return an explanation and a program, with the environment's turn between them."""
        right, _, repaired = task.steps
        shown = whole(task.prompt.split('" ;')[1].strip())
        if random.random() < self.misread:
            (other,) = drawn_steps(random)[:1]
            explained = explanation(random.randrange(task.level), other, random.random() < 0.3)
            return ("misread", (explained, SAYS, shown)) if explained != right else (SOUND, task.steps)
        if random.random() < self.kept:
            return "kept", (right, SAYS, shown)
        return SOUND, (right, SAYS, repaired)


def explanation(place: int, step: Step, missing: bool) -> str:
    """Return the explanation of a wrong step."""
    return f"step {place + 1} {'is missing :' if missing else 'must be'} {described([step])}"


def quick(steps: list[Step]) -> str:
    """Return the body of a program without loops: the lines of its steps and the return."""
    return written([QUICK[verb].format(number) for verb, number in steps])


def whole(body: str) -> str:
    """Return the function that has this body."""
    return f"def f ( x ) : {body}"


SETTINGS = RepairsSettings
