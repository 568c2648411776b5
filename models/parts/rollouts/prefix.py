"""Sample from the middle of a guide's answer: the policy continues an answer that a guide began.

    y = (g_1 .. g_k, a_1 .. a_n),   g: the guide's answer,   k uniform on 0 .. |g| - 1,   a ~ pi

Rollouts that begin at states of good answers see rewards that a policy that begins at the prompt would hardly reach.

    prefix           the guide is in the data: preferred answers, as in Dataset Reset Policy Optimization (DR-PO; paper
                     337), or demonstrations
    guided_prefix    the guide is the reference, which rolls in (reinforcement learning with guided feedback, RLGF:
                     "Learning to Generate Better Than Your LLM"; paper 42)

Derived from the papers' abstracts. The prefix joins the prompt: it is read once for the whole group, it carries no
loss, and rewards see prefix and continuation, both as `text` and as tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from models.base.bounds import Share
from models.base.seeds import choice_seed, round_seed, second_sampling_seed
from models.engines.engine import Sampling, requests_of
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.parts.rollouts.mixture import draw_from_mixture
from models.parts.rollouts.sample import Sample

Prefixes = list[tuple[int, ...]]
"""Prefix of each prompt's group, [prompts] lists of token ids; empty if the group begins at the prompt."""


@part("prefix")
class PrefixSampling(Sample):
    """Completions that begin with a part of an answer from the data. Set under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "preferences"  # type: ignore[misc]
    """Source of the prefixes: the better answers of preferences, or demonstrations."""
    share: Share = 0.5
    """Probability that a prompt's group begins with a prefix and not at the prompt."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return continuations of one prefix per prompt, [prompts * G].

        Prefix and continuation together have at most `max_tokens`.
        """
        seed = round_seed(resources.seed, round_number)
        return continue_prefixes(resources, problems, self._prefixes(problems, seed), self.sampling, seed)

    def _prefixes(self, problems: Sequence[Problem], seed: int) -> Prefixes:
        """Draw beginnings of answers from the data; the same seed of the continuations gives the same cuts."""
        generator = torch.Generator().manual_seed(choice_seed(seed))
        prefixes: Prefixes = []
        for problem in problems:
            reset, which, where = torch.rand(3, dtype=torch.float64, generator=generator).tolist()
            known = [answer.completion for answer in problem.known if answer.origin != "rejected"]
            has_prefix = reset < self.share and bool(known)
            prefixes.append(cut(known[int(which * len(known))], where, self.max_tokens) if has_prefix else ())
        return prefixes


@part("guided_prefix")
class GuidedPrefix(Sample):
    """Completions that begin with a part of one by the reference. Set under `rollouts:`; needs a reference."""

    needs_reference = True
    reads_models = True
    share: Share = 0.5
    """Probability that a prompt's group begins with a prefix and not at the prompt."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return continuations of one prefix per prompt, [prompts * G].

        Prefix and continuation together have at most `max_tokens`.
        """
        seed = round_seed(resources.seed, round_number)
        return continue_prefixes(resources, problems, self._prefixes(resources, problems, seed), self.sampling, seed)

    def _prefixes(self, resources: RunResources, problems: Sequence[Problem], seed: int) -> Prefixes:
        """Draw beginnings of the reference's answers, as the policy's are drawn; the same seed gives the same ones."""
        generator = torch.Generator().manual_seed(choice_seed(seed))
        chances = torch.rand(len(problems), 2, dtype=torch.float64, generator=generator).tolist()
        numbers = [number for number, (reset, _) in enumerate(chances) if reset < self.share]
        prefixes: Prefixes = [()] * len(problems)
        if numbers:
            guided, sampling = [problems[number] for number in numbers], replace(self.sampling, samples=1)
            answers = draw_from_mixture(resources, guided, sampling, 1.0, second_sampling_seed(seed), origin="guide")
            for number, answer in zip(numbers, answers, strict=True):
                prefixes[number] = cut(answer.completion, chances[number][1], self.max_tokens)
        return prefixes


def cut(answer: tuple[int, ...], where: float, longest: int) -> tuple[int, ...]:
    """Cut an answer at `where` in [0, 1), before its last token, so that at least one token is left to write."""
    return answer[: int(where * min(len(answer), longest))]


def continue_prefixes(
    resources: RunResources, problems: Sequence[Problem], prefixes: Prefixes, sampling: Sampling, seed: int
) -> list[Rollout]:
    """Draw the policy's continuations of the prefixes, those of one prompt next to each other, [prompts * G].

    The prompt of a rollout is prompt and prefix; its text is prefix and continuation.
    """
    prefixed = [
        replace(problem, tokens=(*problem.tokens, *prefix)) for problem, prefix in zip(problems, prefixes, strict=True)
    ]
    requests = [
        replace(request, max_tokens=request.max_tokens - len(prefixes[place // sampling.samples]))
        for place, request in enumerate(requests_of([problem.tokens for problem in prefixed], sampling, seed))
    ]
    completions = resources.sampler().complete(requests, sampling)
    numbers = [place // sampling.samples for place in range(len(requests))]
    texts = resources.codec.text(
        [[*prefixes[number], *completion.tokens] for number, completion in zip(numbers, completions, strict=True)]
    )
    return [
        Rollout(
            prefixed[number],
            number,
            completion.tokens,
            completion.log_probs,
            text,
            completion.finished,
            source=RolloutSource(origin="guide" if prefixes[number] else "policy", begun=len(prefixes[number])),
        )
        for number, completion, text in zip(numbers, completions, texts, strict=True)
    ]
