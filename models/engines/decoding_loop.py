"""Token-by-token decoding with one model, or with several models together.

With several voices the next token comes from the geometric mixture of their distributions, normalised at every token:

    p(token)  proportional to  product over the voices of p_voice(token)^weight

Weights may be negative, and terms such as a value of each token may be added (`models.engines.voice`).

All voices read the same tokens in step, each with its own keys and values (`models.engines.shared_decoding`). One voice
of weight 1 is that model's own distribution, to the last digit. A voice may only have a veto: tokens that it finds too
unlikely are not drawn, and the others' mixture is normalised over the rest. Alternatively, two voices take turns: a
switch decides at every token which of them writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.evicting import EvictingDecoding
from models.engines.random_points import TOKENS, WRITERS, points_of
from models.engines.shared_decoding import Decoding, packed_prompts
from models.engines.voice import AddedTerm, TermState, Voice
from models.learner.distribution import MODEL_DISTRIBUTION, Distribution, least_kept
from models.learner.fused_log_probs import next_token_log_probs
from models.learner.image_features import positions_skipped
from models.learner.log_probs import output_head, row_states
from models.text.end_ids import Ends, all_of

PREFILL_TOKENS = 32768
"""Prompt tokens that are read at once."""
NARROW_EVERY = 8
"""Steps after which finished sequences may be dropped."""
WORTH_NARROWING = 0.8
"""Finished sequences are dropped if at most this share of the rows remains."""


Switch = Callable[[Tensor, Tensor | None], Tensor]
"""Chooser of the next token's writer: states of the second of two voices, [rows, hidden], and random points in [0, 1),
[rows] (None: nothing is drawn) -> True for the first, [rows], bool."""


@dataclass(frozen=True, eq=False)
class Switched(Generated):
    """A completion whose tokens two voices wrote by turns."""

    by_first: tuple[bool, ...]
    """Whether the first voice wrote the token, [tokens]."""


def complete(
    voices: Sequence[Voice],
    requests: Sequence[CompletionRequest],
    drawing: TokenSampling,
    *,
    end: Ends,
    most: int,
    switch: Switch | None = None,
    terms: Sequence[AddedTerm] = (),
) -> list[Generated]:
    """Generate a completion for each request, [requests].

    Args:
        voices: the models that generate, at least one, on one device.
        requests: requested completions; neighbours with the same prompt share its keys and values.
        drawing: how tokens are drawn. The temperature is that of the mixture with its terms. Top-k and top-p cut the
            mixture with its terms, not each voice, because the truncated distributions of two may have no token in
            common.
        end: the token that ends every completion, or all that do.
        most: completions that are generated at the same time; affects memory only.
        switch: chooses between two voices at every token, regardless of weights; the completions are `Switched`, with
            the log-probs of the writer. It uses its own random points, so a voice that always writes produces the same
            text as alone. None: the voices form a mixture.
        terms: terms that are added to the mixture's log-probs.

    Raises:
        ValueError: a switch is given, but not two voices without a veto, or it is given with terms; no voice has a
            weight.
    """
    if switch is not None and (terms or [voice.veto_top_p for voice in voices] != [None, None]):
        raise ValueError("a switch chooses between two voices that have a say")
    if switch is None:
        voices = [voice for voice in voices if not voice.silent]
    if all(voice.veto_top_p is not None for voice in voices):
        raise ValueError("no voice has a weight")
    completions: dict[int, Generated] = {}
    for groups in batches(requests, most):
        places = [place for group in groups for place in group]
        batch = _Batch(tuple(requests[place] for place in places), len(groups), drawing, all_of(end))
        completions |= zip(places, _complete_together(voices, batch, switch, terms), strict=True)
    return [completions[place] for place in range(len(requests))]


@dataclass(frozen=True)
class _Batch:
    """Requests that are completed at the same time."""

    requests: tuple[CompletionRequest, ...]
    """Requests, those of one prompt next to each other, the same number for each prompt."""
    groups: int
    """Number of different prompts."""
    drawing: TokenSampling
    ends: tuple[int, ...]
    """Tokens that end every completion."""

    @property
    def group_size(self) -> int:
        """Requests per prompt."""
        return len(self.requests) // self.groups

    @property
    def longest(self) -> int:
        """Tokens of the longest completion."""
        return max(request.max_tokens for request in self.requests)

    @property
    def prompts(self) -> list[Sequence[int]]:
        """Each prompt once, [groups]."""
        return [request.prompt for request in self.requests[:: self.group_size]]

    def stops(self) -> Tensor:
        """Return the tokens that end each completion, [requests, stops]; shorter rows are filled up with `ends`."""
        most = max(len(request.stops) for request in self.requests)
        filled = [
            [*self.ends, *request.stops, *self.ends[:1] * (most - len(request.stops))] for request in self.requests
        ]
        return torch.tensor(filled)


class _Reading:
    """State of a voice during decoding."""

    def __init__(self, voice: Voice, batch: _Batch, whole: bool) -> None:
        """Read nothing yet; `whole`: the voice's distribution is not truncated, because the mixture is."""
        self.voice = voice
        self.distribution = distribution_of(batch.drawing)
        if whole:
            self.distribution = replace(self.distribution, top_p=1.0, top_k=0)
        if voice.veto_top_p is not None:
            self.distribution = replace(self.distribution, top_p=voice.veto_top_p)
        with voice.opened() as model:
            self.place = next(model.parameters()).device
            # rounded as in the learner, so that the drawn tokens have its log-probs
            self.head = output_head(model, voice.autocast)
            skipped = torch.tensor([positions_skipped(model, prompt) for prompt in batch.prompts], device=self.place)
        lengths = torch.tensor([len(prompt) for prompt in batch.prompts], device=self.place)
        sizes = (lengths, batch.group_size, batch.longest, skipped)
        self.decoding = Decoding(*sizes) if voice.budget is None else EvictingDecoding(*sizes, budget=voice.budget)

    def read(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return the states after the tokens `ids` at `positions`, [tokens] each -> [tokens, hidden]."""
        with self.voice.opened() as model:
            return row_states(model, ids, positions, self.decoding, self.voice.autocast)

    def log_probs(self, states: Tensor) -> Tensor:
        """Return the whole distribution after each state, [rows, hidden] -> [rows, vocabulary], nats."""
        if self.voice.autocast is not None:
            states = states.to(self.voice.autocast)
        return next_token_log_probs(states, self.head, self.distribution)


def _complete_together(
    voices: Sequence[Voice], batch: _Batch, switch: Switch | None, terms: Sequence[AddedTerm]
) -> list[Generated]:
    """Return the completions of a batch, [requests]."""
    # The buffers in which a sharded model's weights are gathered are written again when it learns.
    with torch.no_grad() if any(voice.sharded for voice in voices) else torch.inference_mode():
        drawn, drawn_log_probs, by_first = _decode(voices, batch, switch, terms)
    # Rows are copied outside of it: a slice would keep the whole tensor in memory, and could not be used in a gradient.
    rows = list(drawn_log_probs.cpu()) if batch.drawing.log_probs else [None] * len(drawn)
    completions = [
        _cut(request, tokens, row, batch.ends)
        for request, tokens, row in zip(batch.requests, drawn.tolist(), rows, strict=True)
    ]
    if switch is None:
        return completions
    return [
        Switched(completion.tokens, completion.log_probs, completion.finished, tuple(writers[: len(completion.tokens)]))
        for completion, writers in zip(completions, by_first.tolist(), strict=True)
    ]


def _decode(
    voices: Sequence[Voice], batch: _Batch, switch: Switch | None, terms: Sequence[AddedTerm]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, their log-probs, and whether the first voice wrote them, [requests, longest] each.

    Values after an end token, or after a request's longest completion, are undefined.
    """
    speaking = sum(voice.veto_top_p is None for voice in voices)
    joint = switch is None and (speaking > 1 or len(terms) > 0)
    readings = [_Reading(voice, batch, joint and voice.veto_top_p is None) for voice in voices]
    states_of_terms = [term.begin(batch.requests, batch.group_size) for term in terms]
    place = readings[0].place
    requests, prompts, samples, longest = batch.requests, batch.prompts, batch.group_size, batch.longest
    ids, positions = packed_prompts(prompts, place)
    last = torch.tensor([len(prompt) for prompt in prompts], device=place).cumsum(0) - 1
    states = [reading.read(ids, positions)[last].repeat_interleave(samples, dim=0) for reading in readings]
    greedy = batch.drawing.temperature == 0.0
    points = None if greedy else points_of(requests, longest, TOKENS).to(place)
    choices = None if greedy or switch is None else points_of(requests, longest, WRITERS).to(place)
    rooms = torch.tensor([request.max_tokens for request in requests], device=place).view(-1, samples)
    stops = batch.stops().to(place)
    drawn = torch.full((len(requests), longest), batch.ends[0], device=place)
    drawn_log_probs = torch.zeros(drawn.shape, device=place)
    by_first = torch.zeros(drawn.shape, dtype=torch.bool, device=place)
    rows = torch.arange(len(drawn), device=place).view(-1, samples)
    alive = torch.ones_like(rows, dtype=torch.bool)
    for step in range(longest):
        alive_flat, row_of_place = alive.flatten(), rows.flatten()
        alive_rows = row_of_place[alive_flat]
        if switch is None:
            log_probs = _mixture_log_probs(readings, states)
            if joint:
                log_probs = _with_terms(log_probs, states_of_terms, row_of_place, step, batch.drawing)
        else:
            first = switch(states[1], None if choices is None else choices[row_of_place, step])
            log_probs = _writer_log_probs(readings, states, first)
            by_first[alive_rows, step] = first[alive_flat]
        tokens = log_probs.argmax(-1) if points is None else draw_tokens(log_probs, points[row_of_place, step])
        drawn[alive_rows, step] = tokens[alive_flat]
        drawn_log_probs[alive_rows, step] = log_probs.gather(1, tokens[:, None]).squeeze(1)[alive_flat].float()
        ended = (tokens[:, None] == stops[row_of_place]).any(1).view_as(alive)
        alive = alive & ~ended & (rooms > step + 1)
        if not bool(alive.any()):
            break
        if step % NARROW_EVERY == NARROW_EVERY - 1:
            tokens = tokens.view_as(alive)
            kept_prompts = alive.any(1).nonzero().squeeze(1)
            widest = int(alive.sum(1).max())
            if len(kept_prompts) * widest <= WORTH_NARROWING * alive.numel():
                members = alive[kept_prompts].int().argsort(dim=1, descending=True, stable=True)[:, :widest]
                for reading in readings:
                    reading.decoding.narrow(kept_prompts, members)
                for state in states_of_terms:
                    state.narrow(kept_prompts, members)
                rows, alive, rooms, tokens = (
                    wide[kept_prompts[:, None], members] for wide in (rows, alive, rooms, tokens)
                )
            tokens = tokens.flatten()
        for reading in readings:
            reading.decoding.step = step
        states = [reading.read(tokens, reading.decoding.positions(rows.shape[1])) for reading in readings]
        for state in states_of_terms:
            state.read(tokens, rows.flatten(), step)
    return drawn, drawn_log_probs, by_first


def _mixture_log_probs(readings: Sequence[_Reading], states: Sequence[Tensor]) -> Tensor:
    """Return the log-probs of the voices' mixture, [rows, vocabulary]."""
    voice_log_probs = [
        (reading.voice, reading.log_probs(state)) for reading, state in zip(readings, states, strict=True)
    ]
    if len(voice_log_probs) == 1 and voice_log_probs[0][0].weight == 1.0:
        return voice_log_probs[0][1]
    total = torch.zeros_like(voice_log_probs[0][1])
    for voice, log_probs in voice_log_probs:
        if voice.veto_top_p is None:
            total += voice.weight * log_probs
        excluded = torch.isneginf(log_probs)  # also by a voice of negative weight: it would make them certain
        total.masked_fill_(excluded, float("-inf"))
    return torch.log_softmax(total, dim=-1)


def _with_terms(
    log_probs: Tensor, terms: Sequence[TermState], rows: Tensor, step: int, drawing: TokenSampling
) -> Tensor:
    """Return the log-probs of a mixture with its added terms, truncated by top-k and top-p, [rows, vocabulary].

    If the voices exclude every token that the terms allow, the terms alone decide.
    """
    if terms:
        added = sum((term.added(log_probs, rows, step) for term in terms), torch.zeros_like(log_probs))
        added = added / (drawing.temperature or 1.0)
        total = log_probs + added
        nothing_left = torch.isneginf(total).all(dim=-1, keepdim=True)
        log_probs = torch.log_softmax(torch.where(nothing_left, added, total), dim=-1)
    distribution = distribution_of(drawing)
    if distribution.cut:
        least = least_kept(log_probs, distribution)
        log_probs = torch.log_softmax(log_probs.masked_fill(log_probs < least[:, None], float("-inf")), dim=-1)
    return log_probs


def _writer_log_probs(readings: Sequence[_Reading], states: Sequence[Tensor], first: Tensor) -> Tensor:
    """Return the log-probs of the voice that writes, [rows, vocabulary]: the first voice if `first` [rows] is True."""
    first_log_probs, second_log_probs = (
        reading.log_probs(state) for reading, state in zip(readings, states, strict=True)
    )
    return torch.where(first[:, None], first_log_probs, second_log_probs)


def _cut(request: CompletionRequest, tokens: list[int], log_probs: Tensor | None, ends: tuple[int, ...]) -> Generated:
    """Return a row up to its first end token, within the request's longest completion."""
    tokens = tokens[: request.max_tokens]
    first = min((tokens.index(end) for end in (*ends, *request.stops) if end in tokens), default=None)
    finished = first is not None
    length = len(tokens) if first is None else first + 1
    return Generated(tuple(tokens[:length]), None if log_probs is None else log_probs[:length].clone(), finished)


def distribution_of(drawing: TokenSampling) -> Distribution:
    """Return the distribution that gives the log-probs of tokens; for greedy decoding temperature 1, untruncated."""
    if drawing.temperature == 0.0:
        return MODEL_DISTRIBUTION
    return Distribution(temperature=drawing.temperature, top_p=drawing.top_p, top_k=drawing.top_k)


def draw_tokens(log_probs: Tensor, points: Tensor) -> Tensor:
    """Draw the token at which the cumulative probability exceeds each random point in [0, 1), [rows]."""
    line = log_probs.exp().double().cumsum_(-1)  # float32 log-probs limit the accuracy to that of their exponentials
    on_line = points[:, None] * line[:, -1:]
    return torch.searchsorted(line, on_line, right=True).clamp(max=line.shape[-1] - 1).squeeze(1)


def batches(requests: Sequence[CompletionRequest], most: int) -> Iterator[list[list[int]]]:
    """Yield batches of requests that are completed together, as indices, [groups][requests of one prompt].

    The groups of a batch have equal size. A batch has at most `most` sequences and PREFILL_TOKENS tokens of prompts,
    but at least one group.

    A batch's completions depend to the last bit, log-probs included, on the content of the batch, and on nothing else.
    """
    groups: list[list[int]] = []
    for _, same in groupby(range(len(requests)), key=lambda place: requests[place].prompt):
        places = list(same)
        groups += [places[at : at + most] for at in range(0, len(places), most)]
    chunk: list[list[int]] = []
    tokens = 0
    for group in sorted(groups, key=len, reverse=True):
        prompt_tokens = len(requests[group[0]].prompt)
        if chunk and (
            len(group) != len(chunk[0])
            or (len(chunk) + 1) * len(group) > most
            or tokens + prompt_tokens > PREFILL_TOKENS
        ):
            yield chunk
            chunk, tokens = [], 0
        chunk.append(group)
        tokens += prompt_tokens
    if chunk:
        yield chunk
