"""Sample from the policy among the tokens that a lagged copy of it finds likely (NLPO, RL4LMs; paper 4).

    mask(before)          = smallest set of tokens that the lagged policy gives `mask_top_p` together
    mu(token | before)    = pi(token | before) / Z(before) within the mask, zero outside;  Z = sum of pi over the mask

"Is Reinforcement Learning (Not) for Natural Language Processing" cuts the space of actions, tens of thousands of
tokens, to those that a policy known to be fluent would write, and renews that policy every so many updates. Here the
lagged policy is the recipe's reference: `previous_round` with `every` renews it, `frozen` never does.

What is learned: the log-probs that are noted are those of mu, the learner's own are those of pi without a mask. An
objective that weighs each token by pi_old / mu, as `grpo` does, weighs it by Z, so its expected gradient is that of
pi's surrogate with all tokens outside the mask left out. The published code takes its ratios between masked policies
instead; where the policy is the one that sampled, the two differ by the weight Z, at most one, and by a term that
vanishes where advantages average to zero under mu. With a mask of 1 all of it is sampling from the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from models.bounds import Positive
from models.engine.engine import Sampling, check_ids
from models.engine.shared_decoding import Decoding
from models.errors import UserError
from models.learner.fused_log_probs import Distribution, next_token_log_probs
from models.learner.log_probs import output_head, plain_inner, row_states, use_packed_attention
from models.loop.learner import Learner
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reads, World
from models.parts import part

TOGETHER = 256
"""Completions that are drawn side by side; fixed, as it decides which random number goes where."""

Opened = Callable[[], AbstractContextManager[nn.Module | None]]
"""Context in which a model is read; models that share weights differ by it."""


def masked_log_probs(policy: Tensor, lagged: Tensor) -> Tensor:
    """Log-probs of the policy within the mask, normalised, [rows, vocabulary], nats; minus infinity outside.

    Args:
        policy: log-probs of the policy, [rows, vocabulary].
        lagged: log-probs of the lagged policy, cut to its likeliest tokens: minus infinity for what is masked.
    """
    return torch.log_softmax(policy.masked_fill(torch.isneginf(lagged), float("-inf")), dim=-1)


@part("rollouts", "masked")
class Masked:
    """Completions of the policy within the lagged policy's mask. Stands under `rollouts:`."""

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
    """Divides the logits of both models."""
    mask_top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Probability that the mask holds under the lagged policy; 1 masks nothing."""

    @property
    def largest_group(self) -> int:
        """The samples."""
        return self.group_size

    @property
    def sampling(self) -> Sampling:
        """How is drawn, the mask aside; the learner's log-probs mean the same temperature."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature, samples=self.group_size)

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, [prompts * G]; the same seed and round give the same completions.

        Raises:
            UserError: the recipe has no reference, which is the lagged policy.
        """
        learner = world.models()
        embedding: Any = plain_inner(learner.policy).get_input_embeddings()
        check_ids([problem.tokens for problem in problems], int(embedding.weight.shape[0]))
        random = torch.Generator(embedding.weight.device).manual_seed(world.seed * 1_000_003 + round_number)
        models = [model for model in (learner.policy, learner.reference) if model is not None]
        training = [model.training for model in models]
        for model in models:  # drawn without dropout, as an engine draws
            model.eval()
        rollouts: list[Rollout] = []
        most = max(1, TOGETHER // self.group_size)
        for first in range(0, len(problems), most):
            some = problems[first : first + most]
            made = _draw(learner, some, self.sampling, self.mask_top_p, world.codec.end, random)
            texts = world.codec.text([tokens for tokens, _ in made])
            for place, ((tokens, noted), text) in enumerate(zip(made, texts, strict=True)):
                number, problem = first + place // self.group_size, some[place // self.group_size]
                finished = tokens[-1] == world.codec.end
                rollouts.append(Rollout(problem, number, tokens, noted, text, finished))
        for model, before in zip(models, training, strict=True):
            model.train(before)
        return rollouts


class _Reader:
    """One of the two models on its way through the completions."""

    def __init__(self, opened: Opened, distribution: Distribution, autocast: torch.dtype | None) -> None:
        self.opened, self.distribution, self.autocast = opened, distribution, autocast
        with opened() as model:
            if model is None:
                raise UserError("rollouts masked: the lagged policy is the reference, but the recipe's is none")
            use_packed_attention(model)
            head = output_head(model)
        # In the precision of the learner, whose log-probs the drawn tokens are to have.
        self.head = head if autocast is None else replace(head, weight=head.weight.to(autocast))

    def begin(self, decoding: Decoding) -> None:
        """Completions that start anew; keys and values are kept in `decoding`."""
        self.decoding = decoding

    def log_probs(self, ids: Tensor, positions: Tensor, last: Tensor | None = None) -> Tensor:
        """The next token's distribution after the tokens `ids`, or after those at `last`, [rows, vocabulary]."""
        with self.opened() as model:
            assert model is not None, "it was there when the reading began"
            states = row_states(model, ids, positions, self.decoding, self.autocast)
        states = states if last is None else states[last]
        states = states if self.autocast is None else states.to(self.autocast)
        return next_token_log_probs(states, self.head, self.distribution)


@torch.no_grad()
def _draw(
    learner: Learner,
    problems: Sequence[Problem],
    sampling: Sampling,
    mask_top_p: float,
    end: int,
    random: torch.Generator,
) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Tokens and log-probs of completions drawn side by side, [prompts * G]."""
    warm = Distribution(temperature=sampling.temperature)
    readers = [_Reader(lambda: nullcontext(learner.policy), warm, learner.autocast)]
    if mask_top_p < 1.0:  # else the lagged policy has nothing to say
        readers.append(_Reader(learner.as_reference, replace(warm, top_p=mask_top_p), learner.autocast))
    prompts = [problem.tokens for problem in problems]
    place, samples = random.device, sampling.samples
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=place)
    ids = torch.tensor([token for prompt in prompts for token in prompt], device=place)
    positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts]).to(place)
    for reader in readers:
        reader.begin(Decoding(lengths, samples, sampling.max_tokens))
    said = [
        reader.log_probs(ids, positions, lengths.cumsum(0) - 1).repeat_interleave(samples, dim=0) for reader in readers
    ]
    drawn = torch.full((len(prompts) * samples, sampling.max_tokens), end, device=place)
    noted = torch.zeros(drawn.shape, device=place)
    alive = torch.ones(len(drawn), dtype=torch.bool, device=place)
    for step in range(sampling.max_tokens):
        log_probs = masked_log_probs(said[0], said[-1]) if len(said) > 1 else said[0]
        tokens = torch.multinomial(log_probs.double().exp(), 1, generator=random)
        drawn[alive, step] = tokens[alive, 0]
        noted[alive, step] = log_probs.gather(1, tokens)[alive, 0].float()
        alive = alive & (tokens[:, 0] != end)
        if step + 1 == sampling.max_tokens or not bool(alive.any()):
            break
        for reader in readers:
            reader.decoding.step = step
        after = lengths.repeat_interleave(samples) + step
        said = [reader.log_probs(tokens[:, 0], after) for reader in readers]
    rows: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
    for chosen, known in zip(drawn.tolist(), noted.tolist(), strict=True):
        length = chosen.index(end) + 1 if end in chosen else len(chosen)
        rows.append((tuple(chosen[:length]), tuple(known[:length])))
    return rows
