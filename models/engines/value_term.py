"""Values of the next tokens as a term of joint decoding (Value Augmented Sampling, arXiv 2405.06639; paper 166).

    term(token) = beta * (V(text, token) - mean of V over the k likeliest tokens)      for the k likeliest tokens
                = 0                                                                   for all others

V is read after each candidate token. With k = vocabulary the mean is a constant, and the distribution is proportional
to p(token) exp(beta V). Tokens outside of the k likeliest are treated like a token of mean value, as in the published
code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.engines.engine import CompletionRequest
from models.engines.shared_decoding import Decoding, packed_prompts
from models.engines.voice import AddedTerm, TermState
from models.learner.log_probs import row_states
from models.policies.value_model import ValueModel


@dataclass(frozen=True)
class ValueTerm(AddedTerm):
    """The values of a value model, scaled."""

    model: ValueModel
    beta: float
    """Factor of the values, nats per unit of the reward."""
    k: int
    """Number of likeliest tokens whose values are read, at least 1."""

    def begin(self, requests: Sequence[CompletionRequest], group_size: int) -> TermState:
        """See `AddedTerm.begin`; reads the prompts."""
        return _Values(self, requests, group_size)


class _Values(TermState):
    """Keys and values of the value model's backbone for a batch."""

    def __init__(self, term: ValueTerm, requests: Sequence[CompletionRequest], group_size: int) -> None:
        self.term = term
        prompts = [request.prompt for request in requests[::group_size]]
        place = next(term.model.backbone.parameters()).device
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=place)
        self.decoding = Decoding(lengths, group_size, max(request.max_tokens for request in requests))
        self.each = group_size
        self._states(*packed_prompts(prompts, place))

    def added(self, log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        """See `TermState.added`."""
        candidates = log_probs.topk(min(self.term.k, log_probs.shape[1]), dim=-1).indices
        # a candidate's keys and values overwrite those of the one before it; `read` writes those of the drawn token
        places, model = self._places(step), self.term.model
        values = torch.stack([model.values(self._states(tokens, places)) for tokens in candidates.unbind(1)], dim=1).to(
            log_probs
        )
        centred = self.term.beta * (values - values.mean(dim=1, keepdim=True))
        return torch.zeros_like(log_probs).scatter_(1, candidates, centred)

    def read(self, tokens: Tensor, rows: Tensor, step: int) -> None:
        """See `TermState.read`."""
        self._states(tokens, self._places(step))

    def narrow(self, prompts: Tensor, members: Tensor) -> None:
        """See `TermState.narrow`."""
        self.decoding.narrow(prompts, members)
        self.each = members.shape[1]

    def _places(self, step: int) -> Tensor:
        """Set the step of the cache to `step`, and return the position of each row's next token, [rows]."""
        self.decoding.step = step
        return self.decoding.positions(self.each)

    def _states(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Read tokens, and return the backbone's states after them, [tokens, hidden]."""
        return row_states(self.term.model.backbone, ids, positions, self.decoding, None)
