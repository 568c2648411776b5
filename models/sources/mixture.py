"""Sample from the geometric mixture of policy and reference (Nash-MD, arXiv 2312.00886; papers 49 and 348).

    mu(token | before)  proportional to  pi(token | before)^(1 - share) * ref(token | before)^share

normalised at every token, which is how "Nash Learning from Human Feedback" draws: whole completions of the mixture
could not be drawn one token after the other. The mixture is the policy held back towards the reference; learning from
its completions, or against them, makes the last policy converge where self-play alone would go round in circles.

    mixture                 all completions come from the mixture, and all are learned from (IPO-MD)
    sample_beside_mixture   the policy's own completions are learned from, those of the mixture are their opponents

Both models are the learner's own and decode in step, so no engine is needed. Log-probs that are noted are those of the
distribution that was drawn from: the mixture's for its completions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from models.bounds import Positive
from models.engine.decoding_loop import Switch, Switched, Voice, complete
from models.engine.engine import Sampling, check_ids
from models.errors import UserError
from models.learner.log_probs import plain_inner, use_packed_attention
from models.loop.learner import Learner
from models.loop.rollout import Origin, Problem, Rollout
from models.loop.slots import Reads, World
from models.parts import part

TOGETHER = 256
"""Completions that are drawn side by side; fixed, as it decides which random number goes where."""


@part("rollouts", "mixture")
class Mixture:
    """Completions of the mixture, which teach. Stands under `rollouts:`."""

    reads: ClassVar[Reads] = "problems"
    draws: ClassVar[bool] = False
    needs_reference: ClassVar[bool] = True

    prompts: Positive = 64
    """Prompts of one round."""
    group_size: Positive = 8
    """Completions of each prompt (G)."""
    max_tokens: Positive = 64
    """Longest completion, in tokens."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits of both models, and so those of their mixture."""
    reference_share: Annotated[float, Field(ge=0, le=1)] = 0.125
    """Exponent of the reference: 0 is the policy alone, 1 the reference alone."""

    @property
    def largest_group(self) -> int:
        """The samples."""
        return self.group_size

    @property
    def sampling(self) -> Sampling:
        """How is drawn; the learner's log-probs mean the same temperature."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature, samples=self.group_size)

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of the mixture, those of one prompt side by side, [prompts * G]."""
        seed = world.seed * 1_000_003 + round_number
        return draw_from_mixture(world, problems, self.sampling, self.reference_share, seed)


@part("rollouts", "sample_beside_mixture")
class SampleBesideMixture(Mixture):
    """The policy's completions, which teach, and opponents from the mixture, which do not."""

    opponents: Positive = 1
    """Completions of the mixture for each prompt."""

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """The policy's completions, then the opponents, prompt by prompt, [prompts * (G + opponents)]."""
        seed = 2 * (world.seed * 1_000_003 + round_number)
        own = draw_from_mixture(world, problems, self.sampling, 0.0, seed)
        against = replace(self.sampling, samples=self.opponents)
        drawn = draw_from_mixture(world, problems, against, self.reference_share, seed + 1, origin="reference")
        held_back = [replace(one, taught=(False,) * len(one.completion)) for one in drawn]
        return [
            rollout
            for number in range(len(problems))
            for rollout in (
                *own[number * self.group_size : (number + 1) * self.group_size],
                *held_back[number * self.opponents : (number + 1) * self.opponents],
            )
        ]


def draw_from_mixture(
    world: World,
    problems: Sequence[Problem],
    sampling: Sampling,
    share: float,
    seed: int,
    origin: Origin = "policy",
) -> list[Rollout]:
    """What the mixture answers to `problems`, those of one prompt side by side, [prompts * G].

    Args:
        share: exponent of the reference, in [0, 1]; at its ends only one of the models is read.
        seed: of a generator of its own; torch's global one is left alone.
        origin: what the completions are called.

    Raises:
        UserError: the recipe has no reference but the mixture needs one.
    """
    learner = world.models()
    voices = [policy_voice(learner, 1.0 - share), replace(reference_voice(learner), weight=share)]
    return drawn_by(world, problems, [voice for voice in voices if voice.weight > 0], sampling, seed, origin)


def policy_voice(learner: Learner, weight: float = 1.0) -> Voice:
    """The policy as it stands, in the precision that it learns in."""
    return Voice(lambda: nullcontext(learner.policy), weight, learner.autocast)


def reference_voice(learner: Learner) -> Voice:
    """The reference, which the policy may be itself without its adapter."""
    return Voice(lambda: _reference(learner), autocast=learner.autocast)


def drawn_by(
    world: World,
    problems: Sequence[Problem],
    voices: Sequence[Voice],
    sampling: Sampling,
    seed: int,
    origin: Origin = "policy",
    switch: Switch | None = None,
) -> list[Rollout]:
    """What the voices together answer to `problems`, those of one prompt side by side, [prompts * G].

    Args:
        seed: of a generator of its own; torch's global one is left alone.
        origin: what the completions are called.
        switch: who of two voices writes the next token; only what the first wrote is taught. None: they speak together.

    Raises:
        UserError: the reference is one of the voices, but the recipe has none.
    """
    learner = world.models()
    prompts = [problem.tokens for problem in problems]
    embedding: Any = plain_inner(learner.policy).get_input_embeddings()
    check_ids(prompts, int(embedding.weight.shape[0]))
    random = torch.Generator(embedding.weight.device).manual_seed(seed)
    with _without_dropout([one for one in (learner.policy, learner.reference) if one is not None]):
        for voice in voices:
            with voice.opened() as model:
                use_packed_attention(model)
        groups = complete(voices, prompts, sampling, end=world.codec.end, most=TOGETHER, random=random, switch=switch)
    texts = iter(world.codec.text([made.tokens for group in groups for made in group]))
    return [
        Rollout(
            problem,
            number,
            made.tokens,
            made.log_probs,
            next(texts),
            made.finished,
            origin=origin,
            taught=made.by_first if isinstance(made, Switched) else None,
        )
        for number, (problem, group) in enumerate(zip(problems, groups, strict=True))
        for made in group
    ]


@contextmanager
def _reference(learner: Learner) -> Iterator[nn.Module]:
    with learner.as_reference() as model:
        if model is None:
            raise UserError("rollouts: the reference has a voice, but the recipe's reference is none")
        yield model


@contextmanager
def _without_dropout(models: Sequence[nn.Module]) -> Iterator[None]:
    """The models as they are evaluated."""
    training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, before in zip(models, training, strict=True):
            model.train(before)
