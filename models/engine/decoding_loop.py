"""Completions drawn token by token from one model, or from several that speak together.

With several voices the next token comes from the geometric mixture of their distributions, normalised at every token:

    p(token)  proportional to  product over the voices of p_voice(token)^weight

All of them read the same tokens in step, each with keys and values of its own (`models.engine.shared_decoding`). One
voice of weight 1 is that model's own distribution, to the last digit. A voice may have no say but a veto: what it finds
too unlikely is not drawn, and the others' mixture is normalised over what is left. Or two voices take turns: a switch
says at every token which of them writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.engine.engine import Generated, Sampling
from models.engine.shared_decoding import Decoding
from models.learner.fused_log_probs import AS_IT_IS, Distribution, next_token_log_probs
from models.learner.log_probs import output_head, row_states
from models.text.end_ids import Ends, all_of

PREFILL_TOKENS = 32768
"""Tokens of prompts that are read at once."""
NARROW_EVERY = 8
"""Steps after which finished sequences may be dropped."""
WORTH_NARROWING = 0.8
"""They are where at most this share of the rows would be left."""


@dataclass(frozen=True)
class Voice:
    """A model that has a say in the next token."""

    opened: Callable[[], AbstractContextManager[nn.Module]]
    """Context in which it is read; models that share weights can differ by it. Packed attention is in use already."""
    weight: float = 1.0
    """Exponent of its distribution."""
    autocast: torch.dtype | None = None
    """Precision of the matrix products; None: that of the weights."""
    veto_top_p: float | None = None
    """Only a veto: of its likeliest tokens those that hold this probability together may be drawn. None: a say."""


Switch = Callable[[Tensor], Tensor]
"""Who writes the next token: states of the second of two voices, [rows, hidden] -> True for the first, [rows], bool."""


@dataclass(frozen=True, eq=False)
class Switched(Generated):
    """One completion that two voices wrote by turns."""

    by_first: tuple[bool, ...]
    """Whether the first voice wrote the token, [tokens]."""


def complete(
    voices: Sequence[Voice],
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    end: Ends,
    most: int,
    random: torch.Generator | None = None,
    switch: Switch | None = None,
) -> list[list[Generated]]:
    """`sampling.samples` completions of each prompt, [prompts][G].

    Args:
        voices: who speaks, at least one, on one device.
        prompts: token ids, none empty.
        sampling: how tokens are drawn. The temperature is that of each voice, and so of their mixture; top-k and top-p
            are for one voice alone, as what is left of two may have no token in common.
        end: the token that ends a completion, or all that do.
        most: completions that are made side by side; memory only, but it changes which random number goes where.
        random: what draws, on the models' device; None: torch's global generator.
        switch: chooses between two voices at every token, weights aside; the completions are `Switched`, with the
            log-probs of who wrote. It draws nothing from `random`, so a voice that always writes writes what it
            would alone. None: the voices speak together.

    Raises:
        ValueError: a switch, but not two voices that have a say.
    """
    if switch is not None and [voice.veto_top_p for voice in voices] != [None, None]:
        raise ValueError("a switch chooses between two voices that have a say")
    made: list[list[Generated]] = [[] for _ in prompts]
    for first in range(0, sampling.samples, most):
        some = replace(sampling, samples=min(most, sampling.samples - first))
        for chunk in _chunks(prompts, some.samples, most):
            groups = _complete_together(voices, prompts[chunk], some, all_of(end), random, switch)
            for whole, more in zip(made[chunk], groups, strict=True):
                whole += more
    return made


class _Reading:
    """A voice on its way through the completions."""

    def __init__(self, voice: Voice, lengths: list[int], sampling: Sampling) -> None:
        self.voice = voice
        self.distribution = _distribution(sampling)
        if voice.veto_top_p is not None:
            self.distribution = replace(self.distribution, top_p=voice.veto_top_p)
        with voice.opened() as model:
            self.place = next(model.parameters()).device
            # rounded as in the learner, whose log-probs the drawn tokens are to have
            self.head = output_head(model, voice.autocast)
        self.decoding = Decoding(torch.tensor(lengths, device=self.place), sampling.samples, sampling.max_tokens)

    def read(self, ids: Tensor, positions: Tensor) -> Tensor:
        """States after the tokens `ids` at `positions`, [tokens] each -> [tokens, hidden]."""
        with self.voice.opened() as model:
            return row_states(model, ids, positions, self.decoding, self.voice.autocast)

    def log_probs(self, states: Tensor) -> Tensor:
        """The whole distribution after each state, [rows, hidden] -> [rows, vocabulary], nats."""
        if self.voice.autocast is not None:
            states = states.to(self.voice.autocast)
        return next_token_log_probs(states, self.head, self.distribution)


def _complete_together(
    voices: Sequence[Voice],
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    ends: tuple[int, ...],
    random: torch.Generator | None,
    switch: Switch | None,
) -> list[list[Generated]]:
    """Completions of different prompts side by side, [prompts][samples]."""
    with torch.inference_mode():
        drawn, noted, by_first = _decode(voices, prompts, sampling, ends, random, switch)
    # Rows are copied outside of it: one cut out of the whole would keep all of it, and could enter no gradient.
    rows = list(noted.cpu()) if sampling.log_probs else [None] * len(drawn)
    made = [_cut(tokens, row, ends) for tokens, row in zip(drawn.tolist(), rows, strict=True)]
    if switch is not None:
        made = [
            Switched(part.tokens, part.log_probs, part.finished, tuple(writers[: len(part.tokens)]))
            for part, writers in zip(made, by_first.tolist(), strict=True)
        ]
    return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]


def _decode(
    voices: Sequence[Voice],
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    ends: tuple[int, ...],
    random: torch.Generator | None,
    switch: Switch | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their log-probs, and whether the first voice wrote them, [prompts * samples, max_tokens] each; what
    stands behind an end token means nothing."""
    samples = sampling.samples
    readings = [_Reading(voice, [len(prompt) for prompt in prompts], sampling) for voice in voices]
    place = readings[0].place
    ids = torch.tensor([token for prompt in prompts for token in prompt], device=place)
    positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts]).to(place)
    last = torch.tensor([len(prompt) for prompt in prompts], device=place).cumsum(0) - 1
    states = [reading.read(ids, positions)[last].repeat_interleave(samples, dim=0) for reading in readings]
    stops = torch.tensor(ends, device=place)
    drawn = torch.full((len(prompts) * samples, sampling.max_tokens), ends[0], device=place)
    noted = torch.zeros(drawn.shape, device=place)
    by_first = torch.zeros(drawn.shape, dtype=torch.bool, device=place)
    rows = torch.arange(len(drawn), device=place).view(-1, samples)
    alive = torch.ones_like(rows, dtype=torch.bool)
    for step in range(sampling.max_tokens):
        going = alive.flatten()
        if switch is None:
            log_probs = _together(readings, states)
        else:
            first = switch(states[1])
            log_probs = _by_turns(readings, states, first)
            by_first[rows.flatten()[going], step] = first[going]
        tokens = _draw(log_probs, random, greedy=sampling.temperature == 0.0)
        drawn[rows.flatten()[going], step] = tokens[going]
        noted[rows.flatten()[going], step] = log_probs.gather(1, tokens[:, None]).squeeze(1)[going].float()
        alive = alive & ~torch.isin(tokens, stops).view_as(alive)
        if step + 1 == sampling.max_tokens or not bool(alive.any()):
            break
        if step % NARROW_EVERY == NARROW_EVERY - 1:
            tokens = tokens.view_as(alive)
            stay = alive.any(1).nonzero().squeeze(1)
            widest = int(alive.sum(1).max())
            if len(stay) * widest <= WORTH_NARROWING * alive.numel():
                members = alive[stay].int().argsort(dim=1, descending=True, stable=True)[:, :widest]
                for reading in readings:
                    reading.decoding.narrow(stay, members)
                rows, alive, tokens = (wide[stay[:, None], members] for wide in (rows, alive, tokens))
            tokens = tokens.flatten()
        places = (readings[0].decoding.lengths + step).repeat_interleave(rows.shape[1])
        for reading in readings:
            reading.decoding.step = step
        states = [reading.read(tokens, places) for reading in readings]
    return drawn, noted, by_first


def _together(readings: Sequence[_Reading], states: Sequence[Tensor]) -> Tensor:
    """Log-probs of the voices' mixture, [rows, vocabulary]."""
    said = [(reading.voice, reading.log_probs(state)) for reading, state in zip(readings, states, strict=True)]
    if len(said) == 1 and said[0][0].weight == 1.0:
        return said[0][1]
    total = torch.zeros_like(said[0][1])
    for voice, log_probs in said:
        if voice.veto_top_p is None:
            total += voice.weight * log_probs
        else:
            total.masked_fill_(torch.isneginf(log_probs), float("-inf"))
    return torch.log_softmax(total, dim=-1)


def _by_turns(readings: Sequence[_Reading], states: Sequence[Tensor], first: Tensor) -> Tensor:
    """Log-probs of the voice that writes: the first where `first` [rows] says so, [rows, vocabulary]."""
    of_first, of_second = (reading.log_probs(state) for reading, state in zip(readings, states, strict=True))
    return torch.where(first[:, None], of_first, of_second)


def _cut(tokens: list[int], log_probs: Tensor | None, ends: tuple[int, ...]) -> Generated:
    """A row up to its first end token; behind it stands nothing."""
    first = min((tokens.index(end) for end in ends if end in tokens), default=None)
    finished = first is not None
    length = len(tokens) if first is None else first + 1
    return Generated(tuple(tokens[:length]), None if log_probs is None else log_probs[:length].clone(), finished)


def _distribution(sampling: Sampling) -> Distribution:
    """What is drawn from; greedy tells the log-probs of temperature 1, uncut."""
    if sampling.temperature == 0.0:
        return AS_IT_IS
    return Distribution(temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k)


def _draw(log_probs: Tensor, random: torch.Generator | None, *, greedy: bool) -> Tensor:
    """The likeliest token, or the one that a random point falls to on the line of all probabilities, [rows]."""
    if greedy:
        return log_probs.argmax(-1)
    line = log_probs.double().exp().cumsum(-1)
    point = torch.rand(len(line), 1, dtype=line.dtype, device=line.device, generator=random) * line[:, -1:]
    return torch.searchsorted(line, point, right=True).clamp(max=line.shape[-1] - 1).squeeze(1)


def _chunks(prompts: Sequence[Sequence[int]], samples: int, most: int) -> Iterator[slice]:
    """Prompts that are generated for at once: at most `most` sequences and PREFILL_TOKENS tokens, at least one."""
    start = tokens = 0
    for place, prompt in enumerate(prompts):
        if place > start and ((place + 1 - start) * samples > most or tokens + len(prompt) > PREFILL_TOKENS):
            yield slice(start, place)
            start = place
            tokens = 0
        tokens += len(prompt)
    if prompts:
        yield slice(start, len(prompts))
