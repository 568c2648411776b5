"""Judgement of each step by a generative judge, which checks the step with a program first (GenPRM, paper 336).

    program    the judge writes Python for a step, once; the sandbox runs it           its output goes into the question
    v_k        share of yes among the votes on step k
    value      the minimum, the product or the mean of v_1 .. v_K, or the last

A judge that only reads a step tends to repeat its errors; a program computes the step independently. More votes cost
more and give a better estimate. The votes on steps, in order, are the reason in the sample tables. A step without a
readable vote gets zero; otherwise unreadable votes would raise the reward. A completion without any readable step has
no value. If a program fails or prints nothing, its output in the question is `error`. Code that the judge wrote only
runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import torch

from models.method.judge import Answer, GenerativeJudge
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Limits, Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.method.steps import MARKS
from models.parts.rewards.judges.judge_score import OF_JUDGES, Votes
from models.reward_models.judges.question import OUTPUT, PROGRAM, check_template, fill
from models.reward_models.judges.steps import STEP_PLACES, ask_of_steps, step_placeholders
from models.reward_models.judges.verdict import verdict
from models.reward_models.process import Aggregation, ProcessReading, aggregated
from models.sandbox.sandbox import Ran
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.sandbox.written import written_program

FAILED = "error"
"""Output of a program that fails or prints nothing."""
LONGEST_OUTPUT = 500
"""Maximum length of a program's output in the question to the judge, characters."""


@part("judge_steps")
class JudgeSteps(ReasonedReward):
    """Votes of the judge on every step, aggregated."""

    needs_judge = True
    program: str = PROGRAM
    """Template of the question for a program, with the placeholders {prompt}, {before} and {step}: the judge answers
    with a block of Python, or with #### and a line of it. Empty: no program is run."""
    template: str = OUTPUT
    """Template of the question about each step, with the placeholders {step} and, optionally, {prompt} and {before};
    with {output} if there is a program. The judge answers yes or no."""
    votes: Votes = 1
    """Votes on each step."""
    aggregate: Aggregation = "min"
    """Aggregation of the values of a completion's steps."""
    marks: tuple[str, ...] = MARKS
    """Separators of steps: a token whose text contains one of them ends a step."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of a program."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        needed = {"step", *(["output"] if self.program else [])}
        check_template(self.template, needed, f"{where}.template", STEP_PLACES)
        if self.program:
            check_template(self.program, {"step"}, f"{where}.program", STEP_PLACES)

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a program."""
        if self.program:
            _ = shared_sandbox(self.sandbox).layers

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Return values in [0, 1], [completions]; NaN if nothing can be read."""
        judge = resources.required_judge()
        cuts = ProcessReading(self.marks).ends(resources.codec, [each.completion for each in rollouts])
        placeholders = [
            step_placeholders(resources.codec, each.problem.prompt, each.completion, ends, self.marks)
            for each, ends in zip(rollouts, cuts, strict=True)
        ]
        flat: list[Mapping[str, str]] = [places for steps in placeholders for places in steps]
        failed = 0.0
        if self.program:
            outputs = self._outputs(judge, flat)
            failed = outputs.count(FAILED) / max(1, len(outputs))
            flat = [{**places, "output": output} for places, output in zip(flat, outputs, strict=True)]
        shares = ask_of_steps(judge, self.template, flat, self.votes)
        unread = shares.count(None) / max(1, len(shares))
        votes_of = iter(shares)
        values, reasons = [], []
        for steps in placeholders:
            votes = [next(votes_of) for _ in steps]
            worth = torch.tensor([vote or 0.0 for vote in votes])
            read = any(vote is not None for vote in votes)
            values.append(float(aggregated(worth, self.aggregate)) if read else float("nan"))
            reasons.append(" ; ".join("?" if vote is None else f"{vote:.2f}" for vote in votes))
        return Reasoned(torch.tensor(values), reasons, {"unread": unread, "program_failed": failed})

    def _outputs(self, judge: GenerativeJudge, placeholders: Sequence[Mapping[str, str]]) -> list[str]:
        """Return the output of the program for each step, [steps]; equal programs are run once."""
        answers = judge.ask([fill(self.program, places) for places in placeholders], greedy=True)
        sources = [source_of(answer) for (answer,) in answers]
        distinct = [source for source in dict.fromkeys(sources) if source]
        runs = dict(zip(distinct, shared_sandbox(self.sandbox).scripts(distinct), strict=True)) if distinct else {}
        return [printed(runs[source]) if source else FAILED for source in sources]


def source_of(answer: Answer) -> str:
    """Return the program that a judge wrote: its last block of code, or the text after ####; empty if it wrote none."""
    if not answer.finished:
        return ""
    return written_program("?", answer.text, "") if "```" in answer.text else verdict(answer) or ""


def printed(ran: Ran) -> str:
    """Return the output of a program, on one line; `FAILED` if it ended badly or printed nothing."""
    return " ".join(ran.output.split())[:LONGEST_OUTPUT] if ran.status == 0 and ran.output.strip() else FAILED
