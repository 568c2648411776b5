"""A frozen model solves what the policy prepares; the reward is the verdict on the solver's answer.

    hint          policy: 7 + 5 = 12       solver reads problem and hint, answers        (paper 303, arXiv 2302.11520)
    examples      policy: 3 11             solver reads the examples 3 and 11 of a pool  (paper 306, arXiv 2209.14610)
    subproblems   policy: 7 + 5 =          solver: 12   policy: 12 - 3 =   solver: 9     (paper 328, arXiv 2310.18338)
                  policy: done             solver reads problem, questions and answers, and answers the whole

The solver is the policy that the run began with, or a model folder. Its weights are frozen, and its words are not
trained on. It reads whole prompts and answers like in an evaluation of its own: if nothing is prepared, its answer is
the one that it gives without a policy, bit for bit. Any problem with an answer can be used. The reward of an episode is
the share of right answers of the solver, and the episode is solved if the first of them is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from models.agents.play.frozen_partner import FrozenPartner
from models.agents.play.preparation import (
    WorkedExample,
    check_form,
    filled,
    gives_away,
    read_choice,
    read_pool,
    shown_examples,
    stated,
    steps_of,
    sub_question,
    with_prepared,
)
from models.answers.exact import is_right
from models.base.bounds import Number, Positive, Seed
from models.base.errors import UserError
from models.datasets.schema import TURNS
from models.method.environment import EnvironmentAnswer, Info, Seat
from models.method.own_file import OwnFile
from models.method.problem import Problem
from models.method.recipe_paths import ContentPath, RecipePath
from models.method.registry import part

KEY = "rollouts.environment"
FORMS = {
    "hint": "{prompt}\nHint: {prepared}",
    "examples": "{prepared}\n\n{prompt}",
    "subproblems": "{prompt}\n{prepared}",
}
"""Default of the text that the solver reads, for each mode."""


@part("solver")
class Solver(OwnFile, FrozenPartner):
    """A frozen model that solves what the policy prepares."""

    needs_answers = True
    mode: Literal["hint", "examples", "subproblems"] = "hint"
    """Kind of the preparation: a hint, the numbers of worked examples, or sub-questions that the solver answers."""
    model: ContentPath = ""
    """Model folder of the solver; empty: the policy that the run began with."""
    prepared: Literal["policy", "nothing", "random"] = "policy"
    """Source of the preparation. nothing: the solver reads the problem alone, whatever the policy writes. random, for
    examples: they are drawn at random. The last two are baselines of an evaluation."""
    draw: Seed | None = None
    """Seed of one random draw of examples that all problems share; null: each episode has a draw of its own."""
    asks: str = ""
    """Text that the policy reads after the problem; empty: nothing."""
    form: str = ""
    """Text that the solver reads, with `{prompt}` and `{prepared}`; empty: a form for the mode."""
    question: str = "{prompt}\n{prepared}{question}"
    """Text that the solver reads for a sub-question, `{question}`; `{prepared}` are the earlier ones with their
    answers, on lines of their own."""
    questions: Annotated[int, Field(ge=1, le=64)] = 4
    """Most sub-questions; after the last, the solver answers the whole. `rollouts.turns` must be at least this."""
    ends: str = "done"
    """Turn that ends the sub-questions, as an empty turn does."""
    pool: RecipePath = ""
    """A JSONL file of worked examples, {"prompt": ..., "solution": ..., "right": optional}; `right` is false for an
    example with a flaw. A relative path starts at the recipe's folder."""
    sha256: str = ""
    """Hash of its content, filled in when the recipe is read. If a recipe sets it, other content is refused."""
    choose: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of examples that a turn must name; another turn earns the reward of a wrong answer."""
    listed: bool = False
    """Whether the policy reads the pool, with its numbers, before it chooses."""
    attempt: bool = False
    """Whether the solver first answers the problem alone, and the policy reads this answer."""
    answers: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of final answers of the solver, each with a seed of its own."""
    wrong: Number = 0.0
    """Reward if all of them are wrong; it is 1 if all are right, and in between in proportion."""
    leaks: bool = True
    """Whether a hint or sub-question may contain the answer; false: it then earns the reward of a wrong answer."""
    taught: bool = False
    """Whether the warm start also shows how to prepare, and how to solve what is prepared. Both are made from the right
    demonstrations: the hint is the beginning of the solution, the sub-questions are its steps. Examples are drawn at
    random, right ones for a right demonstration and flawed ones for a wrong demonstration."""
    steps: Positive = 1
    """Number of steps of a solution that make a hint in the warm start."""
    between: str = "\n"
    """Text that separates the steps of a solution, and worked examples."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", self.form or FORMS[self.mode])
        check_form(self.form, ("prompt", "prepared"), f"{KEY}.form")
        check_form(self.question, ("prompt", "prepared", "question"), f"{KEY}.question")
        if self.prepared == "random" and self.mode != "examples":
            raise UserError(f"{KEY}.prepared: random draws examples; set mode to examples, or prepared to nothing")
        if not self.between:
            raise UserError(f"{KEY}.between is empty; set the text between the steps of a solution")
        self._know_file(self.pool, self.sha256, f"{KEY}.pool")

    def try_out(self) -> None:
        """Read the pool of worked examples, if the mode needs it.

        Raises:
            UserError: none is named, it cannot be read, or it has fewer examples than a turn must name.
        """
        self._pool()

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Return the seats of the solver, one for each final answer, and of the policy.

        Raises:
            UserError: the problem has no answer, or the pool of worked examples cannot be used.
        """
        if not problem.answer.strip():
            raise UserError(f"problem {problem.id}: it has no answer; environment solver needs one")
        work = _Work(self, problem, self._pool())
        solvers = [
            Seat(_SolverView(work, number), "frozen", learns=False, prompted=True, answers=True)
            for number in range(self.answers)
        ]
        return [*solvers, Seat(_PolicyView(work))]

    @property
    def most_lessons(self) -> int:
        """Largest number of lessons of a demonstration: of preparing, of each sub-question, and of the whole."""
        return (2 + self.questions * (self.mode == "subproblems")) if self.taught else 0

    def lessons(self, name: str, prompt: str, solution: str, right: bool) -> Sequence[tuple[str, str]]:
        """Return a demonstration of preparing the problem, and those of solving what was prepared.

        Examples are drawn among those that are as right as the demonstration, so that the solver imitates its examples.
        The policy learns to name them in any case: its choice among all of the pool is uniform.
        """
        if not self.taught or TURNS in solution or not (right or self.mode == "examples"):
            return ()
        if self.mode == "examples":
            pool = self._pool()
            suited = [n for n, example in enumerate(pool, 1) if example.right == right and example.prompt != prompt]
            if len(suited) < self.choose:
                return ()
            numbers = Random(name).sample(suited, self.choose)
            prepared = shown_examples(pool, numbers, self.between)
            turn = " ".join(map(str, numbers))
            return (prompt, self._turns(turn, solution)), (with_prepared(self.form, prompt, prepared), solution)
        steps = steps_of(solution, self.between)
        if self.mode == "hint":
            hint = self.between.join(steps[: self.steps])
            return (
                ((prompt, self._turns(hint, solution)), (with_prepared(self.form, prompt, hint), solution))
                if hint
                else ()
            )
        pairs = [pair for step in steps if (pair := sub_question(step)) is not None][: self.questions]
        if not pairs:
            return ()
        known = [f"{question} {answer}" for question, answer in pairs]
        exchanges = [
            (self._question(prompt, known[:number], question), f"#### {answer}")
            for number, (question, answer) in enumerate(pairs)
        ]
        turns = [text for pair in pairs for text in pair]
        turns = [*turns, self.ends] if len(pairs) < self.questions else turns[:-1]
        whole = with_prepared(self.form, prompt, "\n".join(known)), solution
        return ((prompt, self._turns(TURNS.join(turns), solution)), *exchanges, whole)

    def _turns(self, turns: str, attempt: str) -> str:
        """Return the policy's turns after the text that it reads first, as a demonstration of several turns."""
        opening = self._opening(attempt if self.attempt else "")
        return f"{TURNS}{opening}{TURNS}{turns}" if opening else turns

    def _opening(self, attempt: str) -> str:
        """Return the text that the policy reads after the problem."""
        listed = [f"{number}: {text.prompt}" for number, text in enumerate(self._pool(), 1)] if self.listed else []
        return "\n".join(text for text in (attempt, *listed, self.asks) if text)

    def _question(self, prompt: str, known: Sequence[str], question: str) -> str:
        """Return the text that the solver reads for a sub-question."""
        lines = "".join(f"{line}\n" for line in known)
        return filled(self.question, {"prompt": prompt, "prepared": lines, "question": question})

    def _pool(self) -> tuple[WorkedExample, ...]:
        if self.mode != "examples":
            return ()
        if not self.given:
            raise UserError(f"{KEY}.pool: name the JSONL file of worked examples that the turns choose from")
        pool = read_pool(self.given[0], f"{KEY}.pool")
        if len(pool) < self.choose:
            raise UserError(f"{KEY}.choose is {self.choose}, but the pool has {len(pool)} examples; lower it")
        return pool


class _Work:
    """Preparation of a problem and the solver's answers, shared by all seats of an episode."""

    def __init__(self, settings: Solver, problem: Problem, pool: Sequence[WorkedExample]) -> None:
        self._settings, self._problem, self._pool = settings, problem, pool
        self._seed = 0
        self.prompts: list[str | None] = []
        """Text that each seat of the solver reads next, [seats]."""
        self.text: str | None = None
        """Text that the policy reads next."""
        self.outcome: EnvironmentAnswer | None = None
        """The end of the episode, as the policy reads it."""
        self._known: list[str] = []
        self._question_text: str | None = None
        self._whole = False
        self._replies: dict[int, str] = {}

    def begin(self, seed: int) -> None:
        """Begin the episode; all seats call it in turn, with the same result."""
        self._seed, self._whole, self._question_text, self.outcome = seed, False, None, None
        self._known, self._replies = [], {}
        self.prompts = [None] * self._settings.answers
        self.text = None if self._settings.attempt else self._settings._opening("")
        if self._settings.attempt:
            self.prompts[0] = self._problem.prompt

    def prepare(self, turn: str) -> None:
        """Take the policy's turn."""
        settings, prompt, turn = self._settings, self._problem.prompt, turn.strip()
        if settings.prepared == "nothing":
            self._solve(prompt)
        elif settings.mode == "examples":
            numbers = read_choice(turn, len(self._pool), settings.choose)
            if settings.prepared == "random":
                chance = Random(self._seed if settings.draw is None else settings.draw)
                numbers = tuple(chance.sample(range(1, len(self._pool) + 1), settings.choose))
            if numbers is None:
                self._end("error: name examples by their numbers")
            else:
                self._solve(with_prepared(settings.form, prompt, shown_examples(self._pool, numbers, settings.between)))
        elif not settings.leaks and gives_away(turn, self._problem.answer):
            self._end("error: the answer is in the text")
        elif settings.mode == "hint":
            self._solve(with_prepared(settings.form, prompt, turn))
        elif turn in ("", settings.ends):
            self._solve(with_prepared(settings.form, prompt, "\n".join(self._known)))
        else:
            self._question_text = turn
            self.prompts[0] = settings._question(prompt, self._known, turn)

    def take_reply(self, seat: int, reply: str) -> None:
        """Take an answer of the solver; it is empty if it did not end."""
        settings = self._settings
        if self._whole:
            self._replies[seat] = reply
            if len(self._replies) == settings.answers:
                self._end(self._replies[0])
        elif self._question_text is None:
            self.text = settings._opening(reply)
        else:
            answer = stated(reply)
            self._known.append(f"{self._question_text} {answer}".strip())
            if len(self._known) < settings.questions:
                self.text = answer
            else:
                self._solve(with_prepared(settings.form, self._problem.prompt, "\n".join(self._known)))

    def _solve(self, prompt: str) -> None:
        """Let the solver answer the whole problem."""
        self._whole = True
        self.prompts = [prompt] * self._settings.answers

    def _end(self, text: str) -> None:
        right = [is_right(reply, self._problem.answer, finished=True) for _, reply in sorted(self._replies.items())]
        share = sum(right) / len(right) if right else 0.0
        reward = self._settings.wrong + (1.0 - self._settings.wrong) * share
        self.outcome = text, reward, True, False, {"solved": bool(right) and right[0]}


class _SolverView:
    """The view of a seat of the solver."""

    def __init__(self, work: _Work, seat: int) -> None:
        self._work, self._seat = work, seat

    def reset(self, seed: int) -> tuple[str, Info]:
        self._work.begin(seed)
        prompt = self._work.prompts[self._seat]
        return (prompt, {}) if prompt is not None else ("", {"waits": True})

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._work.prompts[self._seat] = None
        self._work.take_reply(self._seat, turn)
        return self.news()

    def news(self) -> EnvironmentAnswer | None:
        if self._work.outcome is not None:
            return "", 0.0, True, False, {}
        prompt = self._work.prompts[self._seat]
        return None if prompt is None else (prompt, 0.0, False, False, {})

    def close(self) -> None:
        return None


class _PolicyView:
    """The policy's view."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def reset(self, seed: int) -> tuple[str, Info]:
        self._work.begin(seed)
        text, self._work.text = self._work.text, None
        return ("", {"waits": True}) if text is None else (text, {})

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._work.prepare(turn)
        return self.news()

    def news(self) -> EnvironmentAnswer | None:
        if self._work.outcome is not None:
            return self._work.outcome
        text, self._work.text = self._work.text, None
        return None if text is None else (text, 0.0, False, False, {})

    def close(self) -> None:
        return None
