"""Scoring of many completions without gradient, each shared token once.

Equal completions of a prompt are one sequence, and shared prefixes of the others are read once (a tree for each prompt,
`models.learner.attention.prefix_tree`). The last layer is computed to the end only for the tokens that scores are read
from, because no other token depends on its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.attention.prefix_tree import Forest, forests, trees
from models.learner.attention.tree_attention import TreeAttention
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import (
    PROBE_TOLERANCE,
    in_vocabulary,
    plain_inner,
    row_states,
    use_packed_attention,
)
from models.learner.packing import Sequences, packed_row
from models.learner.rows import from_every_rank, rows_of
from models.learner.whole_weights import ranks_of
from models.reward_models.model import score, scores_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LARGEST_TREE = 512
"""Maximum number of tokens of a tree; larger ones become packed rows, because the attention between branches would cost
more than a tree saves."""
ROW = 2048
"""Tokens of a row of trees, so that a layer's activations fit into the processor's cache."""
PROBE = Sequences([(1, 2, 3)] * 4 + [(4, 5)], [(6, 7, 8, 9), (6, 7, 4), (6, 7), (5, 4), (3, 2, 1)])
"""Completions with common prefixes, one of them the prefix of others: enough to detect a model that reads trees
wrongly."""

_TRIED: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


@torch.no_grad()
def score_all(
    model: PreTrainedModel,
    sequences: Sequences,
    *,
    token_budget: int = 16384,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Score many completions in their order, [completions], float32 on the CPU, without gradient.

    The scores are on every rank that holds a part of the model.

    Equal sequences get the same score to the last bit. Otherwise a score depends on the other sequences by rounding.

    Args:
        token_budget: tokens of one row, or of the longest sequence if that is more; affects memory only.

    Raises:
        UserError: a completion is empty or a sequence longer than the model allows, or a score is not finite.
    """
    budget, cut = max([token_budget, *checked_lengths(model, sequences)]), ranks_of(model).count > 1
    use_packed_attention(model)
    different, which = sequences.once_each()
    scores = torch.full((len(different),), float("nan"))
    with in_eval_mode(model):
        # A GPU has a kernel for spans of any length.
        grown = trees(different) if model.device.type == "cpu" and not cut and reads_trees(model) else []
        small = [tree for tree in grown if len(tree.ids) <= min(LARGEST_TREE, budget)]
        for forest in forests(small, min(ROW, budget), model.device):
            scores[list(forest.members)] = scores_of(model, last_states(model, forest, autocast)).float().cpu()
        # Includes scores that are not finite: in a tree an invalid sequence affects its neighbours, in packed rows not.
        left = (~torch.isfinite(scores)).nonzero().flatten().tolist()
        known: dict[int, Tensor] = {}
        for row in rows_of(model, different, budget, among=left):
            values = score(model, row.sequences, autocast=autocast).float().cpu()
            known |= dict(zip(row.indices, values, strict=True)) if row.counts else {}
        for index, value in from_every_rank(model, known, scores.device).items():
            scores[index] = value
    if not torch.isfinite(scores).all():
        bad = which.index(int(torch.isfinite(scores).int().argmin()))
        raise UserError(f"reward model: the score of sequence {bad} is not finite")
    return scores[which]


def checked_lengths(model: PreTrainedModel, sequences: Sequences, first: int = 0) -> list[int]:
    """Return the number of tokens of each prompt with its completion, [completions].

    Args:
        model: the model that will read them.
        sequences: prompts and completions.
        first: the number of the first of them, for the error.

    Raises:
        UserError: a completion is empty or a sequence longer than the model's maximum number of positions.
    """
    longest = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 0)
    lengths = sequences.lengths
    for index, (length, completion) in enumerate(zip(lengths, sequences.completions, strict=True), start=first):
        if not len(completion):
            raise UserError(f"reward model: sequence {index} has no completion")
        if longest and length > longest:
            raise UserError(f"reward model: sequence {index} has {length} tokens, the model takes {longest}")
    return lengths


def last_states(model: nn.Module, row: Forest, autocast: torch.dtype | None) -> Tensor:
    """Compute the hidden state of the last token of each sequence of a row of trees, [sequences, hidden]."""
    with _only_these(model, row.last.unique()):
        states = row_states(model, row.ids, row.positions, TreeAttention(row), autocast)
    return states.index_select(0, row.last)


@torch.no_grad()
def reads_trees(model: nn.Module) -> bool:
    """Return whether `model` gives the same states for trees as for packed rows; tested once, on a few tokens.

    A model that runs its layers in its own order does not.
    """
    if model not in _TRIED:
        use_packed_attention(model)
        probe = in_vocabulary(model, PROBE)
        packed = packed_row(probe)
        known = row_states(model, packed.ids, packed.positions, packed.layout, None).index_select(0, packed.last)
        (row,) = forests(trees(probe), ROW)
        try:
            gap = float((last_states(model, row, None) - known[list(row.members)]).abs().max())
        except Exception:  # a model's own code meets a row that it was not written for
            gap = float("inf")
        _TRIED[model] = gap <= PROBE_TOLERANCE[known.dtype] * float(known.std())
    return _TRIED[model]


@contextmanager
def _only_these(model: nn.Module, places: Tensor) -> Iterator[None]:
    """Restrict the last layer's feed-forward part to the tokens at `places`, [some tokens], each once.

    The states of the other tokens must not be used. A model without such a part is left unchanged.
    """
    layers: Any = getattr(plain_inner(model).base_model, "layers", None)
    part: Any = getattr(layers[-1], "mlp", None) if layers else None
    if not isinstance(part, nn.Module):
        yield
        return
    tokens = 0

    def take(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        nonlocal tokens
        tokens = given[0].shape[1]
        return (given[0].index_select(1, places), *given[1:])

    def put(module: nn.Module, given: Any, outcome: Any) -> Any:
        if isinstance(outcome, tuple):  # mixture-of-experts layers also return their routing
            return (put(module, given, outcome[0]), *outcome[1:])
        whole = outcome.new_zeros(1, tokens, outcome.shape[-1])
        return whole.index_copy_(1, places, outcome)

    hooks = [part.register_forward_pre_hook(take), part.register_forward_hook(put)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
