"""Keys and values of sequences at different places: each has a slot, and one step reads a token of each.

In `models.engines.shared_decoding` all completions of a batch start and step together and share their prompt's keys and
values. Here completions start and end one by one, each with its own copy. The slots in use are the first ones, so a
step reads them without gathering.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.engines.scores import kept_dtype, scaled_and_capped
from models.learner.attention.packed_attention import attend_packed
from models.learner.attention.span_tables import tables_of
from models.learner.layout import Layout


class SlotCache:
    """Attention state of growing sequences, each in a slot (`models.learner.attention.packed_attention.RowAttention`).

    Args:
        slots: largest number of sequences at once.
        place: device of the cache.
    """

    def __init__(self, slots: int, place: torch.device) -> None:
        self.slots = slots
        self.used = 0
        """Number of slots in use: the first ones."""
        self.lengths = torch.zeros(slots, dtype=torch.long, device=place)
        """Number of tokens read in each, [slots]."""
        self._longest = 0
        self._room = 0
        self._prompts: _Prompts | None = None
        self._kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def begin(self, lengths: Sequence[int], slots: Sequence[Sequence[int]], room: int) -> Tensor:
        """Prepare to read a row of prompts, each for the sequences of one or more slots after those in use.

        Args:
            lengths: tokens of each prompt, [prompts].
            slots: slots of each prompt, [prompts] lists.
            room: final tokens of the longest of the new sequences.

        Returns:
            Positions of the row's tokens, [tokens].
        """
        self._prompts = _Prompts(lengths, slots, self.lengths.device)
        self._room = max(self._room, room)
        self.used += sum(len(row) for row in slots)
        for length, row in zip(lengths, slots, strict=True):
            self.lengths[list(row)] = length
        return torch.cat([torch.arange(length) for length in lengths]).to(self.lengths.device)

    def step(self, active_slots: int) -> Tensor:
        """Prepare to read one token of each of the first `active_slots` slots. Returns their positions."""
        self._prompts = None
        self.active_slots = active_slots
        self.lengths[:active_slots] += 1
        self._longest = int(self.lengths[:active_slots].max())
        return self.lengths[:active_slots] - 1

    def free(self, slot: int) -> None:
        """Free the slot of a finished sequence; the sequence of the last slot in use moves there."""
        self.used -= 1
        self.lengths[slot] = self.lengths[self.used]
        for keys, values in self._kept.values():
            keys[slot], values[slot] = keys[self.used], values[self.used]

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Compute attention of the current row, [1, heads, tokens, size] -> [1, tokens, heads, size]."""
        kept_keys, kept_values = self._of(module, key, value)
        if self._prompts is not None:
            for start, stop, slots in self._prompts.stretches:
                kept_keys[slots, :, : stop - start] = key[0, :, start:stop].to(kept_keys.dtype)
                kept_values[slots, :, : stop - start] = value[0, :, start:stop].to(kept_values.dtype)
            return attend_packed(
                query, key, value, tables_of(self._prompts.layout, query.device), scale, window, softcap
            )
        active_slots, longest = self.active_slots, self._longest
        rows = torch.arange(active_slots, device=key.device)
        last = self.lengths[:active_slots] - 1
        kept_keys[rows, :, last] = key[0].transpose(0, 1).to(kept_keys.dtype)
        kept_values[rows, :, last] = value[0].transpose(0, 1).to(kept_values.dtype)
        heads, key_heads, size = query.shape[1], key.shape[1], query.shape[-1]
        queries = (
            query[0].transpose(0, 1).reshape(active_slots, key_heads, heads // key_heads, size).to(kept_keys.dtype)
        )
        scores = queries @ kept_keys[:active_slots, :, :longest].transpose(2, 3)
        weights = self._softmax(scores, last, scale, window, softcap)
        out = weights.to(kept_values.dtype) @ kept_values[:active_slots, :, :longest]
        return out.to(value.dtype).reshape(1, active_slots, heads, value.shape[-1])

    def _softmax(self, scores: Tensor, last: Tensor, scale: float, window: int | None, softcap: float | None) -> Tensor:
        """Return the weights of a sequence's own tokens, [slots, key heads, each, longest]."""
        places = torch.arange(scores.shape[-1], device=scores.device)
        hidden = places > last[:, None]
        if window is not None:
            hidden = hidden | (last[:, None] - places >= window)
        logits = scaled_and_capped(scores, scale, softcap).masked_fill(hidden[:, None, None, :], float("-inf"))
        return torch.softmax(logits, dim=-1)

    def _of(self, module: nn.Module, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of a layer, [slots, key heads, room, size], with room for all completions in progress.

        The number of slots doubles when needed, because there may be many more than completions are ever requested.
        Empty places hold zeros: hidden places have weight zero, and zero times uninitialised memory might be NaN.
        """
        known = self._kept.get(module)
        if known is not None and len(known[0]) >= self.used and known[0].shape[2] >= self._room:
            return known
        slots = max(len(known[0]) if known else 0, min(self.slots, 1 << (self.used - 1).bit_length()))
        grown = []
        for number, rows in enumerate((key, value)):
            room = (slots, rows.shape[1], self._room, rows.shape[-1])
            fresh = torch.zeros(room, dtype=kept_dtype(rows), device=rows.device)
            if known is not None:
                before = known[number]
                fresh[: len(before), :, : before.shape[2]] = before
            grown.append(fresh)
        self._kept[module] = grown[0], grown[1]
        return self._kept[module]


class _Prompts:
    """A row of prompts with the slots of each."""

    def __init__(self, lengths: Sequence[int], slots: Sequence[Sequence[int]], place: torch.device) -> None:
        self.stretches: list[tuple[int, int, Tensor]] = []
        """Begin and end of a prompt in the row, and its slots, [slots of it]."""
        self.layout = Layout.of_sequences(lengths)
        for span, row in zip(self.layout.spans, slots, strict=True):
            self.stretches.append((span.start, span.start + span.length, torch.tensor(list(row), device=place)))
