"""Decoding with a budget of keys and values: heavy hitters and the newest tokens stay (H2O, 2306.14048; paper 365).

    score(t)  = sum of the attention weights that token t got so far, over the queries of its key head
    kept      = the `recent` newest tokens, and of the others the `heavy` ones with the largest score

This is decided for each sequence, layer and key head by itself: after the prompt, and after each token that was read. A
token that was dropped never returns. The keys and values of dropped tokens are masked and stay in memory, as in the
published code for measurements, so that accuracy under a budget is measured, and not time or memory. The completions
are those of another policy: they are for evaluations and never for training.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.scores import scaled_and_capped
from models.engines.shared_decoding import Decoding


@dataclass(frozen=True)
class CacheBudget:
    """Numbers of tokens whose keys and values are kept for each sequence, layer and key head."""

    heavy: int
    """Tokens with the largest attention so far, among those that are not recent."""
    recent: int
    """Newest tokens, at least one."""


@dataclass
class LayerScores:
    """Scores of one layer, and which tokens are kept."""

    scores: Tensor
    """Attention so far, of the prompt and then of the completion, [key heads, prompts, G, longest prompt + room]."""
    kept: Tensor
    """Whether a token is kept, likewise, bool; false for places that were not read yet."""


@dataclass
class EvictingDecoding(Decoding):
    """State of attention while completions are generated with a budget of keys and values."""

    budget: CacheBudget = field(default_factory=lambda: CacheBudget(heavy=1, recent=1))
    layers: dict[nn.Module, LayerScores] = field(default_factory=dict)

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
        """Compute attention of the current row over the tokens that are kept; see `Decoding.attend`.

        Raises:
            UserError: the model limits its attention by itself, by a window or a soft cap.
        """
        if window is not None or softcap is not None:
            raise UserError("a budget of keys and values needs a model without a sliding window and without a soft cap")
        if self.step < 0:
            out = super().attend(module, query, key, value, scale, window, softcap)
            self._begin(module, query, key, scale)
            return out
        self._layer = self.layers[module]
        return super().attend(module, query, key, value, scale, window, softcap)

    def narrow(self, prompts: Tensor, members: Tensor) -> None:
        """Drop all other sequences; see `Decoding.narrow`."""
        before, longest = self.missing.shape[1], int(self.lengths[prompts].max())
        for layer in self.layers.values():
            for name in ("scores", "kept"):
                rows = getattr(layer, name)[:, prompts[:, None], members]
                setattr(layer, name, torch.cat([rows[..., :longest], rows[..., before:]], dim=-1))
        super().narrow(prompts, members)

    def _begin(self, module: nn.Module, query: Tensor, key: Tensor, scale: float) -> None:
        """Add up the attention on each token of the prompts, and drop tokens beyond the budget."""
        key_heads, prompts, longest = key.shape[1], *self.places.shape
        queries = query[0].view(key_heads, -1, *query.shape[2:])[:, :, self.places]
        keys = key[0][:, self.places]
        scores = torch.einsum("kepqd,kptd->kepqt", queries, keys)
        ahead = torch.ones(longest, longest, dtype=torch.bool, device=key.device).triu(1)
        weights = scaled_and_capped(scores, scale, None).masked_fill(ahead, float("-inf")).softmax(-1)
        weights = weights.masked_fill(self.missing[None, None, :, :, None], 0.0)  # queries beyond a shorter prompt
        total = weights.sum((1, 3))[:, :, None].expand(-1, -1, self.group_size, -1)
        shape = (key_heads, prompts, self.group_size, self.max_tokens)
        self._layer = self.layers[module] = LayerScores(
            torch.cat([total, total.new_zeros(shape)], -1),
            torch.cat(
                [
                    (~self.missing)[None, :, None].expand(key_heads, -1, self.group_size, -1),
                    torch.zeros(shape, dtype=torch.bool, device=key.device),
                ],
                -1,
            ),
        )
        self._drop()

    def _softmax(self, scores: Tensor, scale: float, window: int | None, softcap: float | None) -> Tensor:
        """Return the weights of the kept tokens; add them to the scores, and drop tokens beyond the budget."""
        layer, until = self._layer, scores.shape[-1]
        layer.kept[..., until - 1] = True  # the token that was just read
        masked = scores.masked_fill(~layer.kept[:, :, :, None, :until], float("-inf"))
        weights = super()._softmax(masked, scale, window, softcap)
        layer.scores[..., :until] += weights.sum(3).to(layer.scores.dtype)
        self._drop()
        return weights

    def _drop(self) -> None:
        """Keep the newest tokens and the heaviest of the others."""
        layer, longest = self._layer, self.missing.shape[1]
        offsets = torch.arange(layer.kept.shape[-1], device=layer.kept.device)
        age = self.lengths[:, None] + self.step - offsets  # 0 for the newest token, in a prompt
        own = self.step - (offsets - longest)
        recent = (torch.where(offsets < longest, age, own) < self.budget.recent)[None, :, None]
        others = layer.scores.masked_fill(~layer.kept | recent, float("-inf"))
        places = others.argsort(dim=-1, descending=True, stable=True)
        heavy = torch.zeros_like(layer.kept)
        heavy.scatter_(-1, places[..., : self.budget.heavy], True)
        layer.kept &= recent | heavy
