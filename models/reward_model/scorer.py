"""A reward model as the reward of a training: opened once, asked for scores every round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from models.learner.packing import Sequences
from models.policy.build import on_device
from models.reward_model.ensemble import member_folders, read_ensemble
from models.reward_model.model import load_reward_model
from models.reward_model.scoring import score_all
from models.text.encoding import Codec

Scorer = Callable[[Sequences], Tensor]


def open_scorer(
    folder: Path,
    codec: Codec,
    *,
    token_budget: int,
    autocast_for: Callable[[nn.Module], torch.dtype | None],
    trust_remote_code: bool = False,
) -> Scorer:
    """A function that scores prompts with their completions, [completions], on the learner's device.

    Whichever end token a completion has, the score is read at the one that the reward model was fitted with.

    Args:
        folder: of the reward model.
        codec: the policy's.
        token_budget: tokens of a packed row.
        autocast_for: what the model computes in; None for plain float32.
        trust_remote_code: run code that the model ships.

    Raises:
        UserError: the folder holds no reward model, or an ensemble without one of its members.
    """
    ensemble = read_ensemble(folder)
    folders = [folder] if ensemble is None else member_folders(folder, len(ensemble.levels))
    models = [on_device(load_reward_model(member, trust_remote_code=trust_remote_code)) for member in folders]
    autocast = autocast_for(models[0])

    def score(sequences: Sequences) -> Tensor:
        alike = Sequences(sequences.prompts, codec.ended_alike(sequences.completions))
        scores = [score_all(model, alike, token_budget=token_budget, autocast=autocast) for model in models]
        return scores[0] if ensemble is None else ensemble.read(torch.stack(scores))

    return score
