"""A value model: the policy's backbone with one linear head, read at every token that predicts a completion token.

V_t is the expected value of the rest of the completion before its token t is written: the head reads the hidden state
from which the policy would draw that token, so V_0 depends on the prompt alone. Rows are packed and share their prompts
as the policy's do; the value of a token depends only on the tokens before it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.learner.all_completions import read_each
from models.learner.log_probs import completion_states, hidden_width, plain_inner
from models.learner.optimiser import build_optimiser
from models.learner.packing import Sequences
from models.learner.whole_weights import with_whole_weights
from models.method.learner import Companion
from models.method.schedule import BUDGET_KEY
from models.reward_models.critic.losses import values_of
from models.reward_models.critic.settings import CriticSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HEAD_SPREAD = 0.01
"""Standard deviation of a fresh head's weights: small, so that all values start near each other."""


class Critic(nn.Module):
    """A backbone of its own and a head; the settings define the meaning of the head's outputs."""

    def __init__(self, policy: nn.Module, settings: CriticSettings) -> None:
        """Copy the backbone of `policy`; the head's weights are drawn from torch's global generator."""
        super().__init__()
        source: Any = plain_inner(policy).base_model
        self.backbone: PreTrainedModel = copy.deepcopy(source).requires_grad_(True)
        parameter = next(self.backbone.parameters())
        self.head = nn.Linear(hidden_width(policy), settings.outputs, device=parameter.device, dtype=parameter.dtype)
        nn.init.normal_(self.head.weight, std=HEAD_SPREAD)
        nn.init.zeros_(self.head.bias)
        self.settings = settings

    def outputs(self, sequences: Sequences, autocast: torch.dtype | None = None) -> Tensor:
        """Compute the head's outputs at each completion token, [tokens, outputs], completion after completion.

        Args:
            sequences: prompts and completions, [completions]; they are read as one row, equal prompts once.
            autocast: precision of the backbone's matrix products; the head is computed in the weights' own.
        """

        def read() -> Tensor:
            states, _ = completion_states(self.backbone, sequences, autocast)
            return functional.linear(states.to(self.head.weight.dtype), self.head.weight, self.head.bias)

        return with_whole_weights(self, read)


def end_outputs(critic: Critic, sequences: Sequences, autocast: torch.dtype | None = None) -> Tensor:
    """Compute the head's first output at the last token of each completion, where its end is predicted, [completions].

    Gradients flow into the critic.
    """
    ends = torch.tensor([len(completion) for completion in sequences.completions]).cumsum(0) - 1
    outputs = critic.outputs(sequences, autocast)[:, 0]
    return outputs[ends.to(outputs.device)]


def new_critic(policy: nn.Module, settings: CriticSettings) -> Companion:
    """Build an initial critic with its optimiser."""
    critic = Critic(policy, settings)
    return Companion(critic, build_optimiser(critic, settings.optimiser))


def read_values(
    critic: Critic,
    sequences: Sequences,
    *,
    autocast: torch.dtype | None = None,
    token_budget: int = 16384,
) -> list[Tensor]:
    """Compute the value before each token of every completion, [completions] tensors of [tokens of it], on the CPU.

    No gradient, no dropout.

    Args:
        critic: the value model.
        sequences: prompts and completions, [completions].
        autocast: precision of the backbone's matrix products.
        token_budget: tokens of one packed row; memory only.

    Raises:
        UserError: the budget is smaller than a row.
    """
    return read_each(
        critic,
        sequences,
        lambda part, cut: values_of(critic.outputs(part, autocast), critic.settings).cpu(),
        token_budget=token_budget,
        setting=BUDGET_KEY,
    )
