"""Ensemble of reward models, combined into one score (paper 182, arXiv 2310.02743).

    mean          mean_i r_i
    worst         min_i r_i                                worst-case optimisation
    uncertainty   mean_i r_i - penalty * var_i r_i         uncertainty-weighted; the variance over the members, over n
    worst_group   r_u,  u = argmin_i mean over the completions of r_i         max-min over groups of people (paper 368)

Members differ by their seed, which sets the head and the order of the pairs, or by the group of annotators that they
were fitted to (`worst_group`, models.reward_models.annotators). For groups the minimum is taken once over all
completions that are scored together, a round of them, because the objective is a group's expected reward, and not the
reward of each completion. A Bradley-Terry likelihood does not determine the level of each, so r_i is its score minus
its mean score of the held-out completions; the unit, log-odds, is common.

On disk the first member is the reward model's folder itself, the others are subfolders of it, and `ensemble.json`
describes how they are combined.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.reward_models.settings_file import read_settings_file

FILE = "ensemble.json"
Rule = Literal["mean", "worst", "uncertainty"]
"""Rules that combine members which differ only by their seed."""
Read = Literal[Rule, "worst_group"]
"""Rules that combine the members of a folder; `worst_group` is for members of different groups of annotators."""


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings:
    """Number of reward models and their combination. Section `reward_model.ensemble:`."""

    members: Annotated[int, Field(ge=2)] = 3
    """Number of members, each with a seed of its own."""
    rule: Rule = "worst"
    """Rule that combines their scores."""
    penalty: NonNegativeFloat = 0.1
    """Weight of the members' variance (uncertainty)."""


@dataclass(frozen=True)
class Ensemble:
    """Combination of the members of a folder."""

    rule: Read
    penalty: float
    levels: tuple[float, ...]
    """Mean score of each member's held-out completions, [members]."""

    def read(self, scores: Tensor) -> Tensor:
        """Combine the members' scores, [members, completions] -> [completions]."""
        return combine(scores - scores.new_tensor(self.levels)[:, None], self.rule, self.penalty)


def combine(scores: Tensor, rule: Read, penalty: float = 0.0) -> Tensor:
    """Combine several scores of each completion into one, [members, completions] -> [completions]."""
    if rule == "worst":
        return scores.amin(0)
    if rule == "worst_group":
        return scores[scores.mean(1).argmin()] if scores.shape[1] else scores[0]
    mean = scores.mean(0)
    return mean if rule == "mean" else mean - penalty * scores.var(0, correction=0)


def disagreement(margins: Tensor) -> float:
    """Return the share of pairs that the members do not all order alike, from the margins of each, [members, pairs]."""
    signs = margins.sign()
    return float((signs != signs[0]).any(0).double().mean())


def member_folders(folder: Path, count: int) -> list[Path]:
    """Return the folders of an ensemble's members, [members]."""
    return [folder, *(folder / f"member_{number}" for number in range(2, count + 1))]


def write_ensemble(folder: Path, ensemble: Ensemble) -> None:
    """Write the ensemble's description into the first member's folder."""
    write_file(folder / FILE, json.dumps(asdict(ensemble), indent=1) + "\n")


def read_ensemble(folder: Path) -> Ensemble | None:
    """Read the description of the ensemble in a folder; None: the folder holds a single reward model.

    Raises:
        UserError: its file is not valid, or a member is missing.
    """
    file = folder / FILE
    ensemble: Ensemble | None = read_settings_file(file, Ensemble, "an ensemble")
    if ensemble is None:
        return None
    for member in member_folders(folder, len(ensemble.levels)):
        if not (member / "config.json").is_file():
            raise UserError(f"{file}: the member {member.name} is missing")
    return ensemble


def levels_of(scores: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, ...]:
    """Return the mean score of each member, [members], from its scores of held-out completions.

    The scores are [members] of those of the chosen and of the rejected completions, [pairs] each.
    """
    return tuple(float((chosen.double().mean() + rejected.double().mean()) / 2) for chosen, rejected in scores)
