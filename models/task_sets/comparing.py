"""Solutions to multi-step problems, to be ranked under a principle or compared with a judge's own solution.

    rank correct PROMPT answer 1 : 7 - 3 = 4 ; #### 4 answer 2 : 7 + 5 = 12 ; 12 - 3 = 9 ; #### 9
    7 + 5 = 12 ; 12 - 3 = 9 ; 1 4 12 wrong 0 ; 2 12 12 , 9 9 , 9 9 right ; #### 2 1

    rank concise PROMPT answer 1 : 7 + 5 = 12 ; 12 - 3 = 9 ; #### 9 answer 2 : 7 - 3 = 4 ; #### 4
    1 has 2 ; 2 has 1 ; #### 2 1

    solve PROMPT                                                         7 + 5 = 12 ; 12 - 3 = 9 ; #### 9
    refer PROMPT reference 7 + 5 = 12 ; #### 12 first 7 + 5 = 12 ; #### 12 second 7 + 5 = 13 ; #### 13
    first 12 12 , 12 12 right ; second 13 12 wrong 0 ; #### first

Under `correct` a higher score is better, the number of results before the first that differs from the sound one. Under
`concise` fewer steps are better. Equal solutions keep their order. With a reference, the completion that agrees with it
longer is better, whether or not the reference is right. Results are written in pairs up to the first that differs, the
solution's before the due one, since a small model compares two numbers next to each other, and not two texts at a
glance. The questions have the wording of a training (`models.reward_models.judges.question`). A problem's level is that
of the solutions. The demonstrations have no flaws.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from models.datasets.arithmetic import ArithmeticProblem, work
from models.datasets.schema import SOUND
from models.reward_models.judges.question import RANK, REFER, SOLVE, fill, numbered
from models.task_sets.drawing import Share, Task
from models.task_sets.judging import BETWEEN, SolutionSettings, beside, held, preferred, results

Kind = Literal["correct", "concise", "solve", "refer"]


class ComparingSettings(SolutionSettings):
    """The section `comparing` of params.yaml."""

    kinds: dict[Kind, NonNegativeFloat] = Field(min_length=1)
    """Weight of each kind of question: ranking under either principle, own solutions, comparisons with a reference."""
    ranked: Annotated[int, Field(ge=2, le=9)]
    """Maximum number of solutions in a ranking."""
    mistaken: Share
    """Share of the references that are drawn like solutions and may be wrong; the others are right."""

    def draw(self, random: Random) -> Task:
        """Draw a question of any kind, and its answer."""
        (kind,) = random.choices(list(self.kinds), list(self.kinds.values()))
        problem = self.solvable(random)
        if kind == "solve":
            sound = work(problem)
            return Task(fill(SOLVE, {"prompt": problem.prompt}), str(sound.answer), problem.level, (sound.text,))
        if kind == "refer":
            return self._referred(random, problem)
        solutions = [self.solution(random, problem) for _ in range(random.randint(2, self.ranked))]
        question = fill(
            RANK, {"principles": kind, "prompt": problem.prompt, "completions": numbered(solutions).replace("\n", " ")}
        )
        answer, said = ranked(problem, solutions, kind)
        return Task(question, answer, problem.level, (BETWEEN.join([*said, f"#### {answer}"]),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the right answer."""
        return SOUND, task.steps

    def _referred(self, random: Random, problem: ArithmeticProblem) -> Task:
        """Draw two solutions to be compared with a reference."""
        reference = self.solution(random, problem) if random.random() < self.mistaken else work(problem).text
        both = [self.solution(random, problem) for _ in range(2)]
        question = fill(REFER, {"prompt": problem.prompt, "reference": reference, "first": both[0], "second": both[1]})
        answer, said = referred(reference, both)
        return Task(question, answer, problem.level, (BETWEEN.join([*said, f"#### {answer}"]),))


def ranked(
    problem: ArithmeticProblem, solutions: Sequence[str], principle: Literal["correct", "concise"]
) -> tuple[str, list[str]]:
    """Return the numbers of the solutions from best to worst, and the working before the verdict."""
    if principle == "concise":
        steps = [len(solution.split(BETWEEN)) - 1 for solution in solutions]
        order = sorted(range(len(solutions)), key=lambda place: steps[place])
        said = [f"{number} has {count}" for number, count in enumerate(steps, 1)]
    else:
        judged = [held(problem, solution) for solution in solutions]
        order = sorted(range(len(solutions)), key=lambda place: -judged[place][0])
        said = [line.text for line in work(problem).lines]
        said += [f"{number} {compared}" for number, (_, compared) in enumerate(judged, 1)]
    return " ".join(str(place + 1) for place in order), said


def referred(reference: str, both: Sequence[str]) -> tuple[str, list[str]]:
    """Return the solution that agrees with a reference longer, or neither, and the working before the verdict."""
    mine, other = (beside(results(reference), results(text)) for text in both)
    return preferred(mine, other)


SETTINGS = ComparingSettings
