"""Short questions about solutions to multi-step problems: the items of a problem, and whether a step is right.

    list Start with 7 . Add 5 . Double it .                     #### 1 Start with 7 Add 5 ; 2 Double it ; 3 end
    tick 2 Double it in 7 + 5 = 12 ; 12 * 2 = 23 ; #### 23      12 * 2 = 24 ; 23 24 ; #### no
    step PROMPT so far 7 + 5 = 12 now 12 * 2 = 24               12 * 2 = 24 ; 24 24 ; #### yes
    plain PROMPT so far 7 + 5 = 12 now 12 * 2 = 24              #### yes
    program PROMPT so far 7 + 5 = 12 now 12 * 2 = 23            #### print ( 12 * 2 )
    output 24 step 12 * 2 = 23                                  23 24 ; #### no
    reverse PROMPT answer 24 so far none now 7 + 5 = 12         12 * 2 = 24 ; 24 24 ; #### yes

A step is compared with the expected step: the operation of the same number, applied to the result of the step before
it, so that an error counts once. The two results are written next to each other before the verdict, the solution's
first, since a small model compares two numbers next to each other, and not far apart. `reverse` continues from the
step's own result and asks whether that leads to the answer, which may differ from the problem's. If a solution has
wrong steps, half of its questions are drawn from these: most steps are right, and a judge that always answers yes would
look like a good one. The questions have the wording of a training (`models.reward_models.judges.question`). A problem's
level is that of the solution. The demonstrations have no flaws.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import Field, NonNegativeFloat

from models.datasets.arithmetic import ArithmeticProblem, WorkingLine, work
from models.datasets.schema import SOUND
from models.reward_models.judges.question import LIST, NOTHING, OUTPUT, PLAIN, PROGRAM, REVERSE, STEP, TICK, fill
from models.reward_models.judges.verdict import NO, YES
from models.task_sets.drawing import Task
from models.task_sets.judging import BETWEEN, SolutionSettings, result

Kind = Literal["list", "tick", "step", "plain", "program", "output", "reverse"]


class CheckingSettings(SolutionSettings):
    """The section `checking` of params.yaml."""

    kinds: dict[Kind, NonNegativeFloat] = Field(min_length=1)
    """Weight of each kind of question."""

    def draw(self, random: Random) -> Task:
        """Draw a question of any kind about a solution, and its answer."""
        (kind,) = random.choices(list(self.kinds), list(self.kinds.values()))
        problem = self.solvable(random)
        steps = self.solution(random, problem).split(BETWEEN)
        question, answer, working = _asked(random, kind, problem, steps)
        return Task(question, answer, problem.level, (BETWEEN.join([*working, f"#### {answer}"]),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the right answer."""
        return SOUND, task.steps


def _asked(
    random: Random, kind: Kind, problem: ArithmeticProblem, steps: Sequence[str]
) -> tuple[str, str, Sequence[str]]:
    """Return a question, its verdict, and the working before the verdict."""
    if kind == "list":
        return fill(LIST, {"prompt": problem.prompt}), BETWEEN.join(items(problem)), ()
    if kind == "tick":
        number = asked_about(random, [ticked(problem, steps, place)[0] == YES for place in range(problem.level + 1)])
        question = fill(TICK, {"item": items(problem)[number], "completion": BETWEEN.join(steps)})
        return question, *ticked(problem, steps, number)
    number = asked_about(random, [expected(problem, steps, place) == step for place, step in enumerate(steps)])
    said = {"prompt": problem.prompt, "before": BETWEEN.join(steps[:number]) or NOTHING, "step": steps[number]}
    due = expected(problem, steps, number)
    if kind == "program":
        return fill(PROGRAM, said), program(due), ()
    if kind == "output":
        output = result(due)
        right = _word(_comes_to(steps[number]) == int(output))
        return fill(OUTPUT, said | {"output": output}), right, [beside(steps[number], output)]
    if kind == "reverse":
        answer = result(steps[-1]) if random.random() < 0.5 else str(work(problem).answer)
        going_on, end = onwards(problem, steps, number)
        return fill(REVERSE, said | {"answer": answer}), _word(end == answer), [*going_on, beside(end, answer)]
    working = () if kind == "plain" else [due, beside(steps[number], due)]
    return fill(STEP if kind == "step" else PLAIN, said), _word(due == steps[number]), working


def asked_about(random: Random, right: Sequence[bool]) -> int:
    """Draw the number of the step that a question is about, from 0: half of the time one of the wrong steps, if there
    are any, else any step. `right`: whether each step is right, [steps]."""
    wrong = [number for number, sound in enumerate(right) if not sound]
    return random.choice(wrong) if wrong and random.random() < 0.5 else random.randrange(len(right))


def items(problem: ArithmeticProblem) -> list[str]:
    """Return the numbered items of a problem: its operations, the first with the start, and the end, [level + 1]."""
    start, *operations = (sentence.removesuffix(" .") for sentence in problem.prompt.split(" . "))
    operations[0] = f"{start} {operations[0]}"
    return [f"{number} {asked}" for number, asked in enumerate([*operations, "end"], 1)]


def ticked(problem: ArithmeticProblem, steps: Sequence[str], number: int) -> tuple[str, list[str]]:
    """Return the verdict whether a solution has the item of that number, from 0, and the working before it."""
    if number >= len(steps):
        return NO, [NOTHING]
    due = expected(problem, steps, number)
    return _word(due == steps[number]), [due.removeprefix("#### "), beside(steps[number], due)]


def beside(written: str, due: str) -> str:
    """Return the result of a written step, followed by the due result."""
    return f"{result(written)} {result(due)}"


def expected(problem: ArithmeticProblem, steps: Sequence[str], number: int) -> str:
    """Return the right step of that number, from 0, given the steps before it."""
    left = problem.start if number == 0 else _comes_to(steps[number - 1])
    if number >= problem.level:
        return f"#### {left}"
    operation = problem.operations[number]
    return WorkingLine(left, operation, operation.apply(left)).text


def program(due: str) -> str:
    """Return Python code that prints the due result of a step."""
    return f"print ( {due.removeprefix('#### ').partition(' =')[0]} )"


def onwards(problem: ArithmeticProblem, steps: Sequence[str], number: int) -> tuple[list[str], str]:
    """Return the working that follows from the written result of a step, and its final result."""
    value = _comes_to(steps[number])
    ended = steps[number].startswith("####")
    lines = () if ended else work(ArithmeticProblem(value, problem.operations[number + 1 :])).lines
    return [line.text for line in lines] or [str(value)], str(lines[-1].result if lines else value)


def _comes_to(step: str) -> int:
    return int(result(step))


def _word(right: bool) -> str:
    return YES if right else NO


SETTINGS = CheckingSettings
