"""Similarity of a completion's states to the goal state of preferred completions (paper 203, arXiv 2407.13887).

    q_t = cos(h_t, goal)            goal: mean of the last states of chosen completions, each of length 1

With a reward model that was fitted with the contrast of states (`models.reward_models.contrast`), it shows whether a
partial completion leads to a good one. On disk the goal is `goal.safetensors` in the reward model's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from models.base.errors import UserError
from models.learner.all_completions import read_each
from models.learner.packing import Sequences
from models.reward_models.model import score_and_states
from models.reward_models.scoring import checked_lengths

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILE = "goal.safetensors"
LEARNED_FROM = 1024
"""Maximum number of chosen completions that a goal is computed from."""


@torch.no_grad()
def goal_of(
    model: PreTrainedModel,
    sequences: Sequences,
    *,
    token_budget: int = 16384,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Compute the goal state of completions, [hidden], of length 1, float32 on the CPU.

    Args:
        model: a reward model.
        sequences: prompts with good completions, [completions], at least one.

    Raises:
        UserError: see `states_of`.
    """
    last = [row[-1] for row in states_of(model, sequences, token_budget=token_budget, autocast=autocast)]
    return functional.normalize(functional.normalize(torch.stack(last), dim=-1).mean(0), dim=0)


def nearness(states: Sequence[Tensor], goal: Tensor) -> list[Tensor]:
    """Compute q_t of every token, [completions] tensors of [tokens of it, hidden] -> of [tokens of it], in [-1, 1]."""
    return [functional.cosine_similarity(row, goal.to(row), dim=-1) for row in states]


@torch.no_grad()
def states_of(
    model: PreTrainedModel,
    sequences: Sequences,
    *,
    token_budget: int = 16384,
    autocast: torch.dtype | None = None,
) -> list[Tensor]:
    """Compute the hidden states of each completion's tokens, float32 on the CPU.

    The result is [completions] tensors of [tokens of it, hidden].

    Raises:
        UserError: a completion is empty or a sequence longer than the model allows.
    """
    budget = max([token_budget, *checked_lengths(model, sequences)])

    def read(some: Sequences, indices: Sequence[int]) -> Tensor:
        return torch.cat(score_and_states(model, some, autocast)[1]).float().cpu()

    return read_each(model, sequences, read, token_budget=budget)


def write_goal(folder: Path, goal: Tensor) -> None:
    """Write the goal into the folder of its reward model."""
    save_file({"goal": goal.contiguous()}, folder / FILE)


def read_goal(folder: Path) -> Tensor | None:
    """Read the goal of the reward model in `folder`, [hidden]; None if it has none.

    Raises:
        UserError: its file is not valid.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        return load_file(file)["goal"]
    except (SafetensorError, KeyError, OSError) as error:
        raise UserError(f"{file}: holds no goal ({str(error).splitlines()[0]})") from None
