"""Sampling from the learner's own models together, token by token and without an engine.

Policy and reference are voices (`models.engines.decoding_loop`). They may decode together, in turns, or one under the
veto of the other; the recorded log-probs are those of the distribution that a token was drawn from.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from models.base.bounds import Positive, Temperature
from models.base.errors import UserError
from models.engines.decoding_loop import Switch, Switched, complete
from models.engines.engine import Sampling, check_ids, requests_of
from models.engines.voice import Voice
from models.learner.eval_mode import in_eval_mode
from models.learner.image_features import reads_images
from models.learner.log_probs import plain_inner, use_packed_attention
from models.method.learner import Learner
from models.method.problem import Origin, Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.method.rollout_source import Rollouts

TOGETHER = 256
"""Number of completions that are drawn at the same time."""


@dataclass(frozen=True, kw_only=True)
class JointSampling(Rollouts):
    """Base class of sources that sample from the learner's own models. Set under `rollouts:`."""

    draws = False
    needs_reference = True

    prompts: Positive = 64
    """Number of prompts per round."""
    group_size: Positive = 8
    """Number of completions per prompt (G)."""
    max_tokens: Positive = 64
    """Longest completion, in tokens."""
    temperature: Temperature = 1.0
    """Divides the logits of every model that takes part."""

    @property
    def sampling(self) -> Sampling:
        """Sampling settings; the learner's log-probs use the same temperature."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature, samples=self.group_size)


def policy_voice(learner: Learner, weight: float = 1.0) -> Voice:
    """Return the current policy as a voice (a model that takes part in decoding), in the learner's precision."""
    return Voice(lambda: nullcontext(learner.policy), weight, learner.autocast, sharded=learner.ranks.count > 1)


def reference_voice(learner: Learner) -> Voice:
    """Return the reference as a voice (a model that takes part in decoding); with LoRA the policy without adapter."""
    return Voice(lambda: _reference(learner), autocast=learner.autocast, sharded=learner.ranks.count > 1)


def sample_jointly(
    resources: RunResources,
    problems: Sequence[Problem],
    voices: Sequence[Voice],
    sampling: Sampling,
    seed: int,
    origin: Origin = "policy",
    switch: Switch | None = None,
) -> list[Rollout]:
    """Sample completions of `problems` by decoding with all voices together, ordered by prompt, [prompts * G].

    Args:
        seed: seed of the completions.
        origin: the origin of the completions.
        switch: decides which of two voices writes the next token; only tokens of the first are trained on. None: they
            decode together.

    Raises:
        UserError: the reference is one of the voices, but the recipe has none.
    """
    learner = resources.learner
    prompts = [problem.tokens for problem in problems]
    embedding: Any = plain_inner(learner.policy).get_input_embeddings()
    check_ids(prompts, int(embedding.weight.shape[0]), images=reads_images(learner.policy))
    with in_eval_mode(*(model for model in (learner.policy, learner.reference) if model is not None)):
        for voice in voices:
            with voice.opened() as model:
                use_packed_attention(model)
        asks = requests_of(prompts, sampling, seed)
        completions = complete(voices, asks, sampling, end=resources.codec.ends, most=TOGETHER, switch=switch)
    texts = resources.codec.text([made.tokens for made in completions])
    return [
        Rollout(
            problems[place // sampling.samples],
            place // sampling.samples,
            made.tokens,
            made.log_probs,
            text,
            made.finished,
            source=RolloutSource(origin=origin),
            trained=made.by_first if isinstance(made, Switched) else None,
        )
        for place, (made, text) in enumerate(zip(completions, texts, strict=True))
    ]


def save_reference(learner: Learner, start: Path, folder: Path) -> None:
    """Write the reference as a model folder, for policies that are used with it.

    Args:
        learner: as the run ended.
        start: the model folder that the run began with.
        folder: the folder to create.
    """
    if learner.reference is None:  # the policy without its adapter, as the run began
        shutil.copytree(start, folder)
    else:
        reference: Any = learner.reference
        reference.save_pretrained(folder)


@contextmanager
def _reference(learner: Learner) -> Iterator[nn.Module]:
    with learner.as_reference() as model:
        if model is None:
            raise UserError("rollouts: the reference has a voice, but the recipe's reference is none")
        yield model
