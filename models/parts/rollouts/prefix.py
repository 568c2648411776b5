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
from models.method.rollout import Rollout, RolloutSource
from models.method.world import World
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

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return continuations of one prefix per prompt, [prompts * G].

        Prefix and continuation together have at most `max_tokens`.
        """
        seed = round_seed(world.seed, round_number)
        return continue_prefixes(world, problems, self._prefixes(problems, seed), self.sampling, seed)

    def _prefixes(self, problems: Sequence[Problem], seed: int) -> Prefixes:
        """Draw beginnings of answers from the data; the same seed of the continuations gives the same cuts."""
        generator = torch.Generator().manual_seed(choice_seed(seed))
        prefixes: Prefixes = []
        for problem in problems:
            reset, which, where = torch.rand(3, dtype=torch.float64, generator=generator).tolist()
            good = [answer.completion for answer in problem.known if answer.origin != "rejected"]
            begun = reset < self.share and bool(good)
            prefixes.append(cut(good[int(which * len(good))], where, self.max_tokens) if begun else ())
        return prefixes


@part("guided_prefix")
class GuidedPrefix(Sample):
    """Completions that begin with a part of one by the reference. Set under `rollouts:`; needs a reference."""

    needs_reference = True
    reads_models = True
    share: Share = 0.5
    """Probability that a prompt's group begins with a prefix and not at the prompt."""

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return continuations of one prefix per prompt, [prompts * G].

        Prefix and continuation together have at most `max_tokens`.
        """
        seed = round_seed(world.seed, round_number)
        return continue_prefixes(world, problems, self._prefixes(world, problems, seed), self.sampling, seed)

    def _prefixes(self, world: World, problems: Sequence[Problem], seed: int) -> Prefixes:
        """Draw beginnings of the reference's answers, as the policy's are drawn; the same seed gives the same ones."""
        generator = torch.Generator().manual_seed(choice_seed(seed))
        chances = torch.rand(len(problems), 2, dtype=torch.float64, generator=generator).tolist()
        begun = [number for number, (reset, _) in enumerate(chances) if reset < self.share]
        prefixes: Prefixes = [()] * len(problems)
        if begun:
            asked, once = [problems[number] for number in begun], replace(self.sampling, samples=1)
            drawn = draw_from_mixture(world, asked, once, 1.0, second_sampling_seed(seed), origin="guide")
            for number, answer in zip(begun, drawn, strict=True):
                prefixes[number] = cut(answer.completion, chances[number][1], self.max_tokens)
        return prefixes


def cut(answer: tuple[int, ...], where: float, longest: int) -> tuple[int, ...]:
    """Cut an answer at `where` in [0, 1), before its last token, so that at least one token is left to write."""
    return answer[: int(where * min(len(answer), longest))]


def continue_prefixes(
    world: World, problems: Sequence[Problem], prefixes: Prefixes, sampling: Sampling, seed: int
) -> list[Rollout]:
    """Draw the policy's continuations of the prefixes, those of one prompt next to each other, [prompts * G].

    The prompt of a rollout is prompt and prefix; its text is prefix and continuation.
    """
    begun = [
        replace(problem, tokens=(*problem.tokens, *prefix)) for problem, prefix in zip(problems, prefixes, strict=True)
    ]
    asks = [
        replace(ask, max_tokens=ask.max_tokens - len(prefixes[place // sampling.samples]))
        for place, ask in enumerate(requests_of([problem.tokens for problem in begun], sampling, seed))
    ]
    completions = world.sampler().each(asks, sampling)
    numbers = [place // sampling.samples for place in range(len(asks))]
    texts = world.codec.text(
        [[*prefixes[number], *made.tokens] for number, made in zip(numbers, completions, strict=True)]
    )
    return [
        Rollout(
            begun[number],
            number,
            made.tokens,
            made.log_probs,
            text,
            made.finished,
            source=RolloutSource(origin="guide" if prefixes[number] else "policy", begun=len(prefixes[number])),
        )
        for number, made, text in zip(numbers, completions, texts, strict=True)
    ]
