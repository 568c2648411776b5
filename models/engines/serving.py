"""Completions of one model that start and end one by one, while its weights may change between two tokens.

Each is drawn by its own random points (`models.engines.random_points`), so the other completions in progress change
only the last bits. Keys and values stay as computed by the weights that read the tokens. A completion that continues
with new weights is therefore from a policy that is neither the old nor the new one, and its log-probs are those it was
drawn by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from models.engines.decoding_loop import PREFILL_TOKENS, distribution_of, draw_tokens
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.random_points import TOKENS, points_of
from models.engines.slot_cache import SlotCache
from models.learner.fused_log_probs import next_token_log_probs
from models.learner.log_probs import output_head, row_states


@dataclass
class _Writing:
    """A completion in progress."""

    number: int
    request: CompletionRequest
    points: list[float] | None
    """Random points of its tokens, [max_tokens]; None: greedy."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)

    def completion(self, log_probs: bool, finished: bool) -> Generated:
        """Return the finished completion."""
        token_log_probs = torch.tensor(self.log_probs, dtype=torch.float32) if log_probs else None
        return Generated(tuple(self.tokens), token_log_probs, finished, versions=tuple(self.versions))


class Serving:
    """The completions in progress of one model, which start and end one by one.

    Args:
        model: read with packed attention; its weights may change between two steps.
        drawing: how tokens are drawn.
        ends: tokens that end every completion.
        room: completions that are written at the same time; others wait.
    """

    def __init__(self, model: Any, drawing: TokenSampling, ends: tuple[int, ...], room: int) -> None:
        self.drawing = drawing
        self._model, self._ends, self._room = model, ends, room
        self._distribution = distribution_of(drawing)
        self._place = next(model.parameters()).device
        self._cache = SlotCache(room, self._place)
        self._waiting: deque[tuple[int, CompletionRequest]] = deque()
        self._writing: list[_Writing] = []
        """Completions by slot."""

    @property
    def under_way(self) -> int:
        """Number of unfinished completions, including waiting ones."""
        return len(self._waiting) + len(self._writing)

    @torch.inference_mode()
    def change(self, requests: Mapping[int, CompletionRequest], dropped: Collection[int]) -> None:
        """Add requests by number, and remove completions whose numbers are in `dropped`."""
        self._waiting.extend(requests.items())
        if dropped:
            self._waiting = deque(pair for pair in self._waiting if pair[0] not in dropped)
            for slot in reversed(range(len(self._writing))):
                if self._writing[slot].number in dropped:
                    self._free(slot)

    @torch.inference_mode()
    def step(self, version: int) -> dict[int, Generated]:
        """Draw one token per completion with a slot, by the weights of `version`. Returns the finished completions."""
        states = []
        if active_slots := len(self._writing):
            ids = torch.tensor([writing.tokens[-1] for writing in self._writing], device=self._place)
            states.append(row_states(self._model, ids, self._cache.step(active_slots), self._cache, None))
        while (prompt_states := self._begin()) is not None:
            states.append(prompt_states)
        if not states:
            return {}
        log_probs = next_token_log_probs(torch.cat(states), output_head(self._model), self._distribution)
        if self._writing[0].points is None:
            tokens = log_probs.argmax(-1)
        else:
            points = [writing.points[len(writing.tokens)] for writing in self._writing if writing.points is not None]
            tokens = draw_tokens(log_probs, torch.tensor(points, dtype=torch.float64, device=self._place))
        token_log_probs = log_probs.gather(1, tokens[:, None]).squeeze(1).float().tolist()
        completions = {}
        for slot, (token, value) in reversed(list(enumerate(zip(tokens.tolist(), token_log_probs, strict=True)))):
            writing = self._writing[slot]
            if not writing.versions or writing.versions[-1][1] != version:
                writing.versions.append((len(writing.tokens), version))
            writing.tokens.append(token)
            writing.log_probs.append(value)
            finished = token in self._ends or token in writing.request.stops
            if finished or len(writing.tokens) == writing.request.max_tokens:
                completions[writing.number] = writing.completion(self.drawing.log_probs, finished)
                self._free(slot)
        return completions

    def _begin(self) -> Tensor | None:
        """Read the prompts of requests that have room. Returns their last states, [new requests, hidden], or None."""
        new_requests: list[tuple[int, CompletionRequest]] = []
        tokens = 0
        while self._waiting and len(self._writing) + len(new_requests) < self._room:
            request = self._waiting[0][1]
            same_prompt = bool(new_requests) and new_requests[-1][1].prompt == request.prompt
            if new_requests and not same_prompt and tokens + len(request.prompt) > PREFILL_TOKENS:
                break
            tokens += 0 if same_prompt else len(request.prompt)
            new_requests.append(self._waiting.popleft())
        if not new_requests:
            return None
        first = len(self._writing)
        groups = [
            list(same) for _, same in groupby(range(len(new_requests)), key=lambda place: new_requests[place][1].prompt)
        ]
        prompts = [new_requests[group[0]][1].prompt for group in groups]
        room = max(len(request.prompt) + request.max_tokens for _, request in new_requests)
        slots = [[first + place for place in group] for group in groups]
        positions = self._cache.begin([len(prompt) for prompt in prompts], slots, room)
        ids = torch.tensor([token for prompt in prompts for token in prompt], device=self._place)
        states = row_states(self._model, ids, positions, self._cache, None)
        last = torch.tensor([len(prompt) for prompt in prompts], device=self._place).cumsum(0) - 1
        greedy = self.drawing.temperature == 0.0
        for number, request in new_requests:
            points = None if greedy else points_of([request], request.max_tokens, TOKENS)[0].tolist()
            self._writing.append(_Writing(number, request, points))
        sizes = torch.tensor([len(group) for group in groups], device=self._place)
        return states[last].repeat_interleave(sizes, dim=0)

    def _free(self, slot: int) -> None:
        """Move the last completion to the slot of a finished one."""
        self._cache.free(slot)
        moved = self._writing.pop()
        if slot < len(self._writing):
            self._writing[slot] = moved
