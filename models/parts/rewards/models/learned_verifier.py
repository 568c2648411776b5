"""Step rewards of a generative verifier that is trained together with the policy (RL Tango; paper 235).

    7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 8 9 wrong ; #### 1     judgements of steps, in order, and a verdict

    verifier    r = [verdict = outcome] + format * [verdict and judgements can be read]       GRPO over its own answers
                its advantages are weighted by w_c = c / sqrt(answers on completions of that outcome), mean 1
    policy      r_k = (share of the votes that call step k right - share that call it wrong) / K, at the step's end

The verifier is a language model that begins as the recipe's judge and is trained by reinforcement learning alone. Its
judgements of steps have no labels; only its verdict is compared with the outcome, given by an earlier reward of the
recipe. Every few rounds (`every`) it verifies the round's completions several times and learns from that before it
scores them, so it adapts to the policy. It is a companion: every checkpoint contains its weights and moments, and its
samples depend on the run's seed and its own steps. Equal completions of a prompt are verified once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from models.base.bounds import Number, Positive
from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.judge import Answer
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Limits, TokenReward, before
from models.method.rollout import Rollout
from models.method.steps import MARKS
from models.parts.rewards.judges.judge_score import OF_JUDGES, Votes
from models.parts.shared.reinforced import JudgedQuestion, reinforce
from models.policies.weights import merged_weights
from models.reward_models.judges.question import NOTHING, SCORE, check_template, fill
from models.reward_models.judges.verdict import choice, judged_steps
from models.reward_models.process import ProcessReading


@part("learned_verifier")
class LearnedVerifier(TokenReward):
    """Step rewards by a verifier that begins as a copy of the judge and is trained together with the policy."""

    needs_judge = True
    reads_learner = True
    one_sequence = True
    begins_as = "judge"
    companion = "verifier"
    by: str = "exact_answer"
    """Label of the reward that is the outcome; it must come before this one in the recipe."""
    threshold: Number = 0.5
    """A completion is right if its outcome is above this value."""
    template: str = SCORE
    """Template of the question to the verifier, with the placeholders {prompt} and {completion}; the small judges of
    the data set `judging` were trained on the default, with the verdicts below."""
    renamed: ClassVar[Mapping[str, str]] = {"says_right": "right_verdicts", "says_wrong": "wrong_verdicts"}
    right_verdicts: tuple[str, ...] = ("9",)
    """Verdicts that mean that a completion is right."""
    wrong_verdicts: tuple[str, ...] = ("0", "1", "2", "3", "4", "5", "6", "7", "8")
    """Verdicts that mean that it is wrong; any other text has no verdict."""
    marks: tuple[str, ...] = MARKS
    """Separators of steps: a token whose text contains one of them ends a step of a completion."""
    votes: Votes = 1
    """Votes on each completion for the policy's reward."""
    samples: Annotated[int, Field(ge=2, le=64)] = 4
    """Answers about each completion that the verifier is trained on."""
    every: Positive = 3
    """Rounds between trainings of the verifier; it is trained in the first round."""
    passes: Positive = 1
    """Optimiser steps on its answers of a round."""
    format: NonNegativeFloat = 0.8
    """Reward of the verifier for a readable answer; a right verdict is worth 1."""
    balance: bool = True
    """Whether answers on completions of the rarer outcome have a larger weight."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=3e-4, warmup_steps=5))
    """Optimiser of the verifier."""
    limits: Limits = OF_JUDGES

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        check_template(self.template, {"prompt", "completion"}, f"{where}.template")
        if not self.right_verdicts or not self.wrong_verdicts:
            raise UserError(f"{where}: right_verdicts and wrong_verdicts need at least one verdict each")

    def accompany(self, policy: nn.Module) -> Companion:
        """Copy the judge."""
        verifier = copy.deepcopy(policy).requires_grad_(True).eval()
        return Companion(verifier, build_optimiser(verifier, self.optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Train the verifier on its answers about the round's completions, every `every` rounds.

        Returns metrics of these answers, drawn before the training, and of the fit. `accuracy` is the share of right
        verdicts among all answers, `balanced_accuracy` the mean over both outcomes, `readable_share` the share of
        readable answers, and `agreement` the share of the verdicts on a completion that agree with the majority.

        Raises:
            UserError: no reward before this one is called `by`, or the judge's weights are not on this machine.
        """
        right = before(self.label, self.by, components) > self.threshold
        counts = resources.learner.tally.shown
        past_rounds = counts.get(self.label, 0)
        counts[self.label] = past_rounds + 1
        if past_rounds % self.every or not rollouts:
            return {}
        questions = self._questions(rollouts)
        place_of: dict[str, int] = {}
        for place, question in enumerate(questions):
            place_of.setdefault(question, place)
        temperature, answers = self._ask(resources, list(place_of), self.samples)
        outcomes = [bool(right[place]) for place in place_of.values()]
        weights = balanced(outcomes) if self.balance else [1.0] * len(outcomes)
        answered = [
            JudgedQuestion(question, replies, [self._worth(answer, outcome) for answer in replies], weight)
            for question, replies, outcome, weight in zip(place_of, answers, outcomes, weights, strict=True)
        ]
        fitted = reinforce(
            resources,
            resources.learner.companions[self.companion],
            answered,
            temperature=temperature,
            passes=self.passes,
            optimiser=self.optimiser,
            key=f"rewards.{self.label}.optimiser",
        )
        return self._answer_metrics(answers, outcomes) | fitted

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the rewards at the last token of each judged step, zero elsewhere.

        The result is [completions] tensors of [tokens of it]. Steps of an episode's environment get none. The rewards
        of a completion add up to a value in [-1, 1].
        """
        rows = [torch.zeros(len(rollout.completion)) for rollout in rollouts]
        _, answers = self._ask(resources, self._questions(rollouts), self.votes)
        cuts = ProcessReading(self.marks).ends(resources.codec, [rollout.completion for rollout in rollouts])
        for rollout, row, replies, cut in zip(rollouts, rows, answers, cuts, strict=True):
            written = rollout.written
            ends = [end for end in cut if written[end]]
            for answer in replies:
                for end, is_right in zip(ends, judged_steps(answer), strict=False):
                    row[end] += (1.0 if is_right else -1.0) / (len(replies) * len(ends))
        return rows

    def _verdict(self, answer: Answer) -> bool | None:
        """Return whether an answer calls the completion right; None if it has no verdict."""
        chosen = choice(answer, (*self.right_verdicts, *self.wrong_verdicts))
        return None if chosen is None else chosen < len(self.right_verdicts)

    def _readable(self, answer: Answer) -> bool:
        """Return whether an answer has a verdict and judges at least one step."""
        return self._verdict(answer) is not None and bool(judged_steps(answer))

    def _worth(self, answer: Answer, outcome: bool) -> float:
        """Return the verifier's reward for an answer about a completion with this outcome."""
        return float(self._verdict(answer) == outcome) + self.format * self._readable(answer)

    def _questions(self, rollouts: Sequence[Rollout]) -> list[str]:
        pairs = [(rollout.problem.prompt, rollout.text) for rollout in rollouts]
        return [fill(self.template, {"prompt": prompt, "completion": text or NOTHING}) for prompt, text in pairs]

    def _ask(self, resources: RunResources, questions: Sequence[str], votes: int) -> tuple[float, list[list[Answer]]]:
        """Return the judge's temperature and its answers with the verifier's weights, [questions][votes]."""
        learner = resources.learner
        companion = learner.companions[self.companion]
        weights = dict(merged_weights(companion.model))  # put together on every rank; the first has the judge

        def ask() -> tuple[float, list[list[Answer]]]:
            judge = resources.required_judge()
            judge.load(weights, companion.updates)
            return judge.temperature, judge.ask(questions, votes)

        return learner.ranks.from_first(ask)

    def _answer_metrics(self, answers: Sequence[Sequence[Answer]], outcomes: Sequence[bool]) -> dict[str, float]:
        verdicts = [[self._verdict(answer) for answer in replies] for replies in answers]
        hits = torch.tensor(
            [[verdict == right for verdict in row] for row, right in zip(verdicts, outcomes, strict=True)]
        )
        shares, right = hits.float().mean(1), torch.tensor(outcomes)
        by_outcome = [float(some.mean()) for some in (shares[right], shares[~right]) if len(some)]
        most = [max(row.count(value) for value in (True, False)) / len(row) for row in verdicts]
        readable = [self._readable(answer) for replies in answers for answer in replies]
        return {
            "accuracy": float(shares.mean()),
            "balanced_accuracy": sum(by_outcome) / len(by_outcome),
            "readable_share": sum(readable) / len(readable),
            "agreement": sum(most) / len(most),
        }


def balanced(outcomes: Sequence[bool]) -> list[float]:
    """Return the weight of each completion by the rarity of its outcome, with mean 1, [completions].

    It is inversely proportional to the root of the number of completions that share the outcome.
    """
    raw = [outcomes.count(outcome) ** -0.5 for outcome in outcomes]
    return [weight * len(raw) / sum(raw) for weight in raw]
