"""Decoding with shared prompts: the G completions of a prompt read one copy of its keys and values.

Each step is one packed row with one token per sequence; the model's own layers run on it, and attention is called
through the same interface as in the learner. Scores against a prompt are one matrix product for all its completions
(Hydragen, arXiv 2402.05099), those against a completion's own tokens one small product each; one softmax is over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.engines.scores import kept_dtype, scaled_and_capped
from models.learner.attention.packed_attention import attend_packed
from models.learner.attention.span_tables import tables_of
from models.learner.layout import Layout


def packed_prompts(prompts: Sequence[Sequence[int]], place: torch.device) -> tuple[Tensor, Tensor]:
    """Return the token ids of all prompts in a row, and the position of each in its prompt, [tokens] each, int64."""
    ids = torch.tensor([token for prompt in prompts for token in prompt], device=place)
    return ids, torch.cat([torch.arange(len(prompt)) for prompt in prompts]).to(place)


@dataclass
class LayerCache:
    """Keys and values of one layer, of prompts and completions."""

    prompt_keys: Tensor
    """[key heads, prompts, longest prompt, size]."""
    prompt_values: Tensor
    keys: Tensor
    """Keys of the completions, [key heads, prompts, G, longest completion, size], in `kept_dtype`; filled to `step`."""
    values: Tensor


@dataclass
class Decoding:
    """State of attention while G completions of each of a few prompts are generated at the same time."""

    lengths: Tensor
    """Tokens of each prompt, [prompts]."""
    group_size: int
    max_tokens: int
    skipped: Tensor | None = None
    """Positions that images of each prompt leave out, [prompts]; see `positions_skipped`. None: there are none."""
    step: int = -1
    """Completion tokens read so far, less one; -1 while the prompts are read."""
    kept: dict[nn.Module, LayerCache] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths: list[int] = self.lengths.tolist()
        self.layout = Layout.of_sequences(lengths)
        starts = [span.start for span in self.layout.spans]
        offsets = torch.arange(max(lengths), device=self.lengths.device)
        within = torch.minimum(offsets[None, :], self.lengths[:, None] - 1)
        self.places = torch.tensor(starts, device=self.lengths.device)[:, None] + within
        self.missing = offsets[None, :] >= self.lengths[:, None]
        """Mask of places after the end of shorter prompts, [prompts, longest]."""
        self.uneven = bool(self.missing.any())

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
        if self.step < 0:
            self._keep(module, key, value)
            return attend_packed(query, key, value, tables_of(self.layout, query.device), scale, window, softcap)
        cache = self.kept[module]
        key_heads, prompts, groups = cache.keys.shape[:3]
        heads, size = query.shape[1], query.shape[-1]
        until = self.step + 1
        shape = (key_heads, prompts, groups, size)
        cache.keys[:, :, :, self.step] = key[0].reshape(shape)
        cache.values[:, :, :, self.step] = value[0].reshape(shape)
        queries = query[0].reshape(key_heads, -1, prompts, groups, size).permute(0, 2, 3, 1, 4).contiguous()
        by_prompt, by_completion = (
            queries.view(key_heads * prompts, -1, size),
            queries.view(-1, heads // key_heads, size),
        )
        prompt_scores = torch.bmm(by_prompt, cache.prompt_keys.flatten(0, 1).transpose(1, 2))
        own_scores = torch.bmm(by_completion.to(cache.keys.dtype), cache.keys.flatten(0, 2)[:, :until].transpose(1, 2))
        scores = torch.cat(
            [prompt_scores.view(*queries.shape[:-1], -1), own_scores.view(*queries.shape[:-1], -1)], dim=-1
        )
        weights = self._softmax(scores, scale, window, softcap)
        prompt_weights, own_weights = weights.split([scores.shape[-1] - until, until], dim=-1)
        out = torch.bmm(own_weights.flatten(0, 2), cache.values.flatten(0, 2)[:, :until]).view_as(queries)
        prompt_weights = prompt_weights.to(value.dtype).flatten(2, 3).flatten(0, 1)
        out += torch.bmm(prompt_weights, cache.prompt_values.flatten(0, 1)).view_as(queries)
        return out.permute(1, 2, 0, 3, 4).to(value.dtype).reshape(1, -1, heads, size)

    def positions(self, samples: int) -> Tensor:
        """Return the positions of the tokens of the current step, [prompts * samples]."""
        ends = self.lengths if self.skipped is None else self.lengths - self.skipped
        return (ends + self.step).repeat_interleave(samples)

    def narrow(self, prompts: Tensor, members: Tensor) -> None:
        """Drop all other sequences, and continue with those that stay.

        Args:
            prompts: prompts that stay, [prompts left].
            members: completions that stay of each, [prompts left, G left].
        """
        longest = int(self.lengths[prompts].max())
        for cache in self.kept.values():
            cache.prompt_keys = cache.prompt_keys[:, prompts, :longest].contiguous()
            cache.prompt_values = cache.prompt_values[:, prompts, :longest].contiguous()
            cache.keys = cache.keys[:, prompts[:, None], members]
            cache.values = cache.values[:, prompts[:, None], members]
        self.lengths, self.missing = self.lengths[prompts], self.missing[prompts, :longest]
        self.skipped = None if self.skipped is None else self.skipped[prompts]
        self.uneven = bool(self.missing.any())

    def _keep(self, module: nn.Module, key: Tensor, value: Tensor) -> None:
        """Store a prompt row's keys and values by prompt, and allocate those of the completions."""
        keys, values = (rows[0][:, self.places] for rows in (key, value))
        heads, prompts, _, size = keys.shape
        room = (heads, prompts, self.group_size, self.max_tokens, size)
        wide = kept_dtype(keys)
        self.kept[module] = LayerCache(
            keys, values, keys.new_empty(room, dtype=wide), values.new_empty(room, dtype=wide)
        )

    def _softmax(self, scores: Tensor, scale: float, window: int | None, softcap: float | None) -> Tensor:
        """Return the weights of prompt and own tokens, [key heads, prompts, G, each, longest prompt + own]."""
        logits = scaled_and_capped(scores, scale, softcap)
        hidden: Tensor | None = self.missing if self.uneven else None
        if window is not None:
            place = self.lengths[:, None] + self.step
            too_far = place - torch.arange(self.missing.shape[1], device=scores.device) >= window
            hidden = too_far if hidden is None else hidden | too_far
            own_too_far = self.step - torch.arange(self.step + 1, device=scores.device) >= window
            hidden = torch.cat([hidden, own_too_far.expand(len(hidden), -1)], dim=1)
        elif hidden is not None:
            hidden = functional.pad(hidden, (0, self.step + 1))
        if hidden is not None:
            logits = logits.masked_fill(hidden[:, None, None, :], float("-inf"))
        return torch.softmax(logits, dim=-1).to(scores.dtype)
