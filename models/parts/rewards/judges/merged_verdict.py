"""Agreement with the majority verdict of several critics, as a training signal for a critic (MultiCritique, paper 128).

    merged = the critics' majority verdict on the prompt, if at least `least_share` of the readable ones agree
    value  = 1 if the completion states the merged verdict, else 0

Critics err independently: the majority is right more often, and a critique with another verdict is flawed more often.
Critics are the judge's votes on the prompt, in each wording, and the completions of the group themselves. The prompts
are questions that end in a verdict, such as those of the data set `judging`; the answers of the data are not read.
Completions of a prompt without a merged verdict have no value. The first critique that states the merged verdict is the
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from models.answers.answers import answer_key
from models.base.bounds import Share
from models.base.errors import UserError
from models.method.judge import Answer
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Limits, Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.parts.rewards.judges.judge_score import OF_JUDGES, Votes
from models.reward_models.judges.question import check_template, fill
from models.reward_models.judges.verdict import verdict


@part("merged_verdict")
class MergedVerdict(ReasonedReward):
    """One if a completion states the majority verdict of the critics, zero otherwise."""

    needs_judge = True
    wordings: Annotated[tuple[str, ...], Field(min_length=1)] = ("{prompt}",)
    """Templates of the question to the judge, each with the placeholder {prompt}."""
    votes: Votes = 4
    """Votes on each wording."""
    group: bool = True
    """Whether the completions of a prompt are critics too."""
    least_share: Share = 0.5
    """Minimum share of the readable verdicts that the merged one must have."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.wordings:
            raise UserError(f"rewards.{self.label}.wordings: there is none")
        for number, wording in enumerate(self.wordings):
            check_template(wording, {"prompt"}, f"rewards.{self.label}.wordings.{number}")

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Return one, zero or NaN, [completions]."""
        critiques = [Answer(rollout.text, rollout.finished) for rollout in rollouts]
        prompts = list(dict.fromkeys(rollout.problem.prompt for rollout in rollouts))
        critics: dict[str, list[Answer]] = {prompt: [] for prompt in prompts}
        for wording in self.wordings:
            questions = [fill(wording, {"prompt": prompt}) for prompt in prompts]
            for prompt, answers in zip(prompts, resources.required_judge().ask(questions, self.votes), strict=True):
                critics[prompt] += answers
        unread = [key_of(answer) is None for answers in critics.values() for answer in answers]
        if self.group:
            for rollout, answer in zip(rollouts, critiques, strict=True):
                critics[rollout.problem.prompt].append(answer)
        merged = {prompt: merge(answers, self.least_share) for prompt, answers in critics.items()}
        values, reasons = [], []
        for rollout, answer in zip(rollouts, critiques, strict=True):
            prompt = rollout.problem.prompt
            majority = merged[prompt]
            values.append(float("nan") if majority is None else float(key_of(answer) == majority))
            texts = (critic.text for critic in critics[prompt] if majority is not None and key_of(critic) == majority)
            reasons.append(next(texts, ""))
        metrics = {
            "unread": sum(unread) / max(1, len(unread)),
            "merged": sum(majority is not None for majority in merged.values()) / max(1, len(merged)),
        }
        return Reasoned(torch.tensor(values), reasons, metrics)


def key_of(answer: Answer) -> str | None:
    """Return a key that is equal for equal verdicts; None without a verdict."""
    stated = verdict(answer)
    return None if stated is None else answer_key(stated)


def merge(answers: Sequence[Answer], least_share: float) -> str | None:
    """Return the most frequent verdict; None if two tie for it, too few answers have it, or no answer has one."""
    counts = Counter(key for answer in answers if (key := key_of(answer)) is not None)
    ranked = counts.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    key, votes = ranked[0]
    return key if votes >= least_share * counts.total() else None
