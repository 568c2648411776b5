"""Self-explanation for prompts that always fail (ExPO; paper 231): the policy explains an answer that it is given.

    y ~ pi(. | x)              G times; if none of them is right:
    e ~ pi(. | x, answer)      placed under x alone

A group without any success gives no signal, however often it is drawn. An explanation that the policy writes itself,
knowing the answer, is likely under the policy, unlike an expert's, and leads to the right answer, unlike its own tries.
It joins the group that failed, which then contains a preference. It was not sampled from pi(. | x), so it has no
behaviour log-probs. The form of the hint is not the paper's: it must suit the policy's tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.answers.exact import solves
from models.base.bounds import Positive
from models.base.seeds import round_seed, second_sampling_seed
from models.method.problem import Problem, systems_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample, draw
from models.text.encoding import Codec


@part("explained")
class Explained(Sample):
    """Samples, and explanations of the true answer if all samples are wrong. Set under `rollouts:`."""

    explanations: Positive = 2
    """Explanations drawn per failed prompt."""
    hint: Annotated[str, Field(pattern=r"\{answer\}")] = "{prompt}\nThe answer is {answer}. Explain it step by step."
    """Prompt of an explanation; `{prompt}` and `{answer}` are replaced by those of the problem."""
    only_right: bool = True
    """Whether explanations that do not end in the true answer are left out."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of samples and explanations."""
        return self.group_size + self.explanations

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the tokens that the prompt of an explanation adds to the question while it is drawn, [problems]."""
        return [
            max(0, len(with_answer.tokens) - len(problem.tokens)) if problem.answer else 0
            for problem, with_answer in zip(problems, self._with_answers(codec, problems), strict=True)
        ]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return samples, then explanations if none is right, prompt by prompt, [prompts * G and more]."""
        seed = round_seed(resources.seed, round_number)
        sampled = draw(resources, problems, self.sampling, seed)
        solved = {rollout.group for rollout in sampled if solves(rollout)}
        failed = [number for number, problem in enumerate(problems) if number not in solved and problem.answer]
        explanations = self._explain(resources, [problems[number] for number in failed], second_sampling_seed(seed))
        explained = dict(zip(failed, explanations, strict=True))
        rollouts = []
        for number, problem in enumerate(problems):
            rollouts += sampled[number * self.group_size : (number + 1) * self.group_size]
            rollouts += [replace(rollout, problem=problem, group=number) for rollout in explained.get(number, [])]
        return rollouts

    def _explain(self, resources: RunResources, problems: Sequence[Problem], seed: int) -> list[list[Rollout]]:
        """Return explanations of the answers to `problems`, [prompts] lists."""
        if not problems:
            return []
        questions = self._with_answers(resources.codec, problems)
        drawn = draw(resources, questions, replace(self.sampling, samples=self.explanations), seed, origin="explained")
        kept: list[list[Rollout]] = [[] for _ in problems]
        for rollout in drawn:
            if not self.only_right or solves(rollout):
                kept[rollout.group].append(replace(rollout, behaviour_log_probs=None))
        return kept

    def _with_answers(self, codec: Codec, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems with their answer in the prompt, [prompts]."""
        texts = [
            self.hint.replace("{prompt}", problem.prompt).replace("{answer}", problem.answer) for problem in problems
        ]
        prompts = codec.prompts(texts, systems_of(problems))
        return [replace(problem, tokens=tuple(ids)) for problem, ids in zip(problems, prompts, strict=True)]
