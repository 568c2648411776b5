"""Reward code that a judge writes from a goal, and rewrites from feedback on episodes (Text2Reward, paper 18).

    value(episode) = reward(prompt, completion, turns)        within [-largest, largest]

The judge gets a goal, the code so far and feedback, and writes a Python function. Feedback is the mean and spread of
the values, the mean of episodes that the environment reports as solved and of others, and the episodes with the
highest and lowest value; the paper's feedback is that of a person who watches. Code that is not plain
(`models.sandbox.plain_code`), fails on an episode of the round or gives a value that is not finite is not used: the
judge gets the error and tries again. All code runs in the sandbox.

A small judge cannot write code. With `templates` it chooses instead: it scores some completions of the round, and the
template whose values order them most like its scores is used. This replaces the writing, for tests and small machines.

All codes are part of every checkpoint.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Sequence
from dataclasses import field
from itertools import combinations
from typing import Any

import torch
from pydantic import PositiveFloat

from models.base.bounds import Count, Positive
from models.base.errors import UserError, shortened
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Limits, Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.parts.rewards.judges.judge_score import OF_JUDGES, JudgeScore
from models.reward_models.judges.question import SCORE, check_template, fill
from models.sandbox.plain_code import is_plain
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.sandbox.written import written_code

QUESTION = """\
Write a reward function for reinforcement learning. Goal: {goal}

It is called once for each episode, with the text of the task, all that the policy wrote, and a list of turns, each a
pair of the policy's text and the environment's answer. It returns a number from -1 to 1 that also rewards partial
progress. Use plain Python without input and output; of modules only math, itertools and collections. Answer with one
block of code:

```python
def reward(prompt: str, completion: str, turns: list[list[str]]) -> float:
    ...
```

Code so far:
{code}

Feedback on it:
{feedback}
"""
"""Question to a judge that writes code."""
FUNCTION = "reward"
LONGEST = 2_000
"""Number of characters of an episode that the feedback shows."""


class Unusable(Exception):
    """RewardCode code cannot be used; the message gives the reason."""


@part("reward_code")
class RewardCode(ReasonedReward):
    """Value of an episode by code that the judge wrote, or chose among templates."""

    needs_judge = True
    goal: str = ""
    """Goal of the policy in words, for the judge that writes."""
    question: str = QUESTION
    """Template of the question to it, with the placeholders {goal}, {code} and {feedback}."""
    templates: tuple[str, ...] = ()
    """Codes that the judge chooses among; none: it writes."""
    every: Count = 20
    """Number of rounds after which the code is revised; 0: never."""
    tries: Positive = 3
    """Largest number of questions in a revision, until code can be used."""
    compared: Positive = 32
    """Number of completions that the judge scores to choose a template."""
    score: str = SCORE
    """Template of the question for a score, 0 to 9, as of `judge_score`."""
    largest: PositiveFloat = 1.0
    """Largest magnitude of a value."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of one run of the code on the episodes of a round."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        check_template(self.question, {"goal", "code", "feedback"}, f"{where}.question")
        check_template(self.score, {"prompt", "completion"}, f"{where}.score")
        for number, code in enumerate(self.templates):
            if problem := fault_of(code):
                raise UserError(f"{where}.templates.{number}: {problem}")

    @property
    def misfit(self) -> str:
        """Error message if there is neither a goal nor a template; otherwise empty."""
        if self.goal.strip() or self.templates:
            return ""
        return f"rewards.{self.label}.goal: empty; describe what the policy is to reach, or give templates"

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a program."""
        _ = shared_sandbox(self.sandbox).layers

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the value of each episode, [completions]; NaN for all without a code that can be used.

        In a round in which the code is revised, the reason is the code. The metrics are `revised`, whether it is,
        `codes`, the number of different codes so far, and `unusable`, the number of codes that could not be used.
        """
        tally = resources.learner.tally
        number = tally.shown.get(self.label, 0)
        codes = tally.archives.setdefault(self.label, {})
        due = number == 0 or not codes or (self.every > 0 and number % self.every == 0)
        unusable = 0
        if due:
            revise = self._chosen if self.templates else self._rewritten
            code, unusable = revise(resources, rollouts, next(reversed(codes), ""))
            if code:
                codes[code] = codes.pop(code, 0) + 1  # the code in use is the last one
        values = [math.nan] * len(rollouts)
        if codes:
            try:
                values = self._values(next(reversed(codes)), rollouts)
            except Unusable:  # it could be used before: it stays, and this round has no values
                unusable += 1
        tally.shown[self.label] = number + 1
        reason = next(reversed(codes), "") if due else ""
        watched = {"revised": float(due), "codes": float(len(codes)), "unusable": float(unusable)}
        return Reasoned(torch.tensor(values), [reason] * len(rollouts), watched)

    def _rewritten(self, resources: RunResources, rollouts: Sequence[Rollout], code: str) -> tuple[str, int]:
        """Ask the judge for code until it can be used. Returns it, empty if there is none, and the failed tries."""
        feedback = "none yet: this is the first version"
        if code:
            try:
                feedback = feedback_on(self._values(code, rollouts), rollouts)
            except Unusable as error:
                feedback = f"it fails: {error}"
        for tried in range(self.tries):
            question = fill(self.question, {"goal": self.goal, "code": code or "none", "feedback": feedback})
            ((answer,),) = resources.required_judge().ask([question])
            written = written_code(answer.text).strip()
            try:
                if not answer.finished:
                    raise Unusable("the answer was cut or is missing")
                self._values(written, rollouts)
            except Unusable as error:
                code, feedback = written or code, f"it cannot be used: {error}"
                continue
            return written, tried
        return "", self.tries

    def _chosen(self, resources: RunResources, rollouts: Sequence[Rollout], code: str) -> tuple[str, int]:
        """Return the template that orders completions most like the judge's scores, and the number that failed."""
        distinct = list({(rollout.problem.prompt, rollout.text): rollout for rollout in rollouts}.values())
        some = distinct[: self.compared]
        scores = JudgeScore(template=self.score).judged(resources.required_judge(), some, resources.seed)
        best, most, failed = "", -1.0, 0
        for template in self.templates:
            try:
                values = self._values(template, some)
            except Unusable:
                failed += 1
                continue
            if (share := agreement(values, scores.values.tolist())) > most:
                best, most = template, share
        return best, failed

    def _values(self, code: str, rollouts: Sequence[Rollout]) -> list[float]:
        """Run the code on each episode in the sandbox, [completions].

        Raises:
            Unusable: it is not plain, fails, or gives values that are not finite numbers.
        """
        if problem := fault_of(code):
            raise Unusable(problem)
        ran = shared_sandbox(self.sandbox).script(script_of(code, [_episode(rollout) for rollout in rollouts]))
        if ran.late:
            raise Unusable(f"it took longer than {self.sandbox.seconds:g} s")
        if ran.status != 0:
            lines = ran.errors.strip().splitlines() or ["it ended without a message"]
            raise Unusable(shortened(lines[-1], 200))
        try:
            values = json.loads(ran.output.splitlines()[-1])
        except (ValueError, IndexError, RecursionError):
            raise Unusable("it printed something") from None
        if not isinstance(values, list) or len(values) != len(rollouts):
            raise Unusable("it gave no list of values")
        if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
            raise Unusable("a value is not a finite number")
        return [max(-self.largest, min(self.largest, float(value))) for value in values]


def fault_of(code: str) -> str:
    """Return the reason why code cannot be a reward, in one line; empty if it can: it is plain and defines `reward`."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is not Python ({shortened(str(error), 100)})"
    if not any(isinstance(node, ast.FunctionDef) and node.name == FUNCTION for node in tree.body):
        return f"it does not define the function {FUNCTION}(prompt, completion, turns)"
    if not is_plain(code):
        return (
            "it is not plain: it imports another module than math, itertools or collections, or uses eval or the like"
        )
    return ""


def script_of(code: str, episodes: Sequence[dict[str, Any]]) -> str:
    """Return a program that prints the values of the episodes as JSON, [episodes]."""
    call = f"[float({FUNCTION}(**_episode)) for _episode in _json.loads(_EPISODES)]"
    return f"import json as _json\n_EPISODES = {json.dumps(episodes)!r}\n{code}\nprint()\nprint(_json.dumps({call}))\n"


def agreement(values: Sequence[float], scores: Sequence[float]) -> float:
    """Compute the share of pairs with different scores that the values order alike; a tie of values counts half.

    Args:
        values: values of a template, [completions].
        scores: scores of the judge, [completions]; NaN if there is none.

    Returns:
        A share in [0, 1]; 0.5 if no pair has different scores.
    """
    read = [(value, score) for value, score in zip(values, scores, strict=True) if not math.isnan(score)]
    signs = [
        0.5 if first[0] == other[0] else float((first[0] > other[0]) == (first[1] > other[1]))
        for first, other in combinations(read, 2)
        if first[1] != other[1]
    ]
    return sum(signs) / len(signs) if signs else 0.5


def feedback_on(values: Sequence[float], rollouts: Sequence[Rollout]) -> str:
    """Describe how code values the episodes of a round, [completions], for the judge that rewrites it."""
    mean = sum(values) / len(values)
    lines = [f"mean {mean:.3f}, lowest {min(values):.3f}, highest {max(values):.3f} of {len(values)} episodes"]
    for solved, name in ((True, "solved"), (False, "not solved")):
        some = [value for value, each in zip(values, rollouts, strict=True) if each.episode.solved is solved]
        if some:
            lines.append(f"mean of the {len(some)} episodes that were {name}: {sum(some) / len(some):.3f}")
    for extreme, name in ((max, "highest"), (min, "lowest")):
        place = extreme(range(len(values)), key=values.__getitem__)
        text = f"{rollouts[place].problem.prompt}\n{rollouts[place].text}"[:LONGEST]
        lines.append(f"episode with the {name} value:\n{text}")
    return "\n".join(lines)


def _episode(rollout: Rollout) -> dict[str, Any]:
    """Return the arguments of the function for an episode."""
    turns = [[turn.text, turn.response] for turn in rollout.episode.turns] or [[rollout.text, ""]]
    return {"prompt": rollout.problem.prompt, "completion": rollout.text, "turns": turns}
