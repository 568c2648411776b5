"""Hidden states of the reference, as input of small heads such as a gate or a value of prompts."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import hidden_width, row_states, use_packed_attention
from models.learner.packing import Sequences, packed_row
from models.learner.rows import rows_of
from models.method.resources import RunResources
from models.method.schedule import BUDGET_KEY


def flat_head(policy: nn.Module, value: float) -> nn.Linear:
    """Build a linear head on the hidden states of `policy`, on its device and in its dtype, whose output is `value`.

    Its weights are zero and its bias is `value`, so that it is constant until it is trained.
    """
    weight = next(policy.parameters())
    head = nn.Linear(hidden_width(policy), 1, device=weight.device, dtype=weight.dtype)
    nn.init.zeros_(head.weight)
    nn.init.constant_(head.bias, value)
    return head


def reference_states(resources: RunResources, sequences: Sequences, reader: str) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the reference's hidden states that predict the completions' tokens, row by row, to limit the memory.

    Args:
        resources: holds the learner and the token budget of a row.
        sequences: prompts and completions, [completions].
        reader: the part that reads them, for the error message.

    Yields:
        Indices of the completions of a row, and the states of their tokens one after the other, [tokens, hidden]; no
        gradient flows into the reference.

    Raises:
        UserError: the recipe has no reference.
    """
    learner = resources.learner
    with learner.as_reference() as reference:
        if reference is None:
            raise UserError(f"{reader} needs a reference, but the recipe has none")
        use_packed_attention(reference)
        place = next(reference.parameters()).device
        # all rows on every rank: the head that reads the states is whole, and is updated equally everywhere
        rows = rows_of(reference, sequences, resources.token_budget, setting=BUDGET_KEY, shared=False)
        for indices, part, _ in rows:
            row = packed_row(part, place)
            with in_eval_mode(reference), torch.no_grad():
                states = row_states(reference, row.ids, row.positions, row.layout, learner.autocast)
            yield indices, states[row.predicting]
