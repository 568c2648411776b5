"""Validity of a written molecule, and a predicted property of it (DrugGen, paper 341).

    value = invalid                                         if the completion is not a molecule (SMILES, read by RDKit)
    value = (predicted property - mean) / spread + bonus    otherwise

The predictor is a ridge regression that is fitted here to measured values, each of a molecule for a target. Its
features are the counts of the molecule's neighbourhoods, the shares of the letters of the target (which is the prompt,
such as a protein's sequence), and all products of both. mean and spread are those of the measured values.
Without measurements, validity alone is paid: `bonus` or `invalid`.

A completion is right, also in evaluations and at the gate, if it is a molecule. The share of different molecules among
the valid ones is reported, because a policy that repeats the best one earns as much.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.answers.molecules import has_rdkit, read_molecule, written_smiles
from models.base.bounds import Number
from models.base.errors import UserError
from models.base.source_code import GivenFile
from models.method.attempt import Attempt
from models.method.own_file import OwnFile
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted ridge regression on molecules and targets."""

    letters: tuple[str, ...]
    """Letters of the targets."""
    weights: Tensor
    """Weight of each feature, the constant last, [features], float64."""
    mean: float
    spread: float

    def __call__(self, targets: Sequence[str], fingerprints: Sequence[Sequence[float]]) -> Tensor:
        """Predict the property of each molecule for its target, [molecules], float64."""
        return features_of(targets, fingerprints, self.letters) @ self.weights


@part("molecule")
class Molecule(OwnFile, ReasonedReward):
    """Predicted property of a valid molecule, in standard deviations; a fixed value for a text that is none."""

    verifies = True
    measured: RecipePath = ""
    """A JSONL file of measured values, {"target": ..., "smiles": ..., "value": ...}; a relative path starts at the
    recipe's folder. Empty: no property is predicted."""
    sha256: str = ""
    """Hash of its content, filled in when the recipe is read. If a recipe sets it, other content is refused."""
    invalid: Number = -2.0
    """Value of a completion that is not a molecule, or was cut."""
    bonus: Number = 0.0
    """Added to the value of every molecule."""
    ridge: PositiveFloat = 1.0
    """Penalty of the predictor's squared weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._know_file(self.measured, self.sha256, f"rewards.{self.label}.measured")

    def try_out(self) -> None:
        """Fit the predictor.

        Raises:
            UserError: RDKit is not installed, or a line is not a measurement of a molecule.
        """
        self._require_rdkit()
        if self.given:
            self._predictor()

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt is a molecule, [attempts]."""
        self._require_rdkit()
        return [each.finished and read_molecule(written_smiles(each.text)) is not None for each in attempts]

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the value of each completion, [completions]; the reason is the canonical form of the molecule.

        The metrics are `valid`, the share of molecules; `different`, the share of different ones among them; and
        `property`, their mean predicted property, in the unit of the measurements.
        """
        self._require_rdkit()
        read = [read_molecule(written_smiles(each.text)) if each.finished else None for each in rollouts]
        values = torch.full((len(rollouts),), float(self.invalid))
        places = [place for place, molecule in enumerate(read) if molecule is not None]
        known = [molecule for molecule in read if molecule is not None]
        watched = {"valid": len(places) / max(1, len(rollouts))}
        if places:
            watched["different"] = len({form for form, _ in known}) / len(known)
            values[places] = float(self.bonus)
            if self.given:
                predictor = self._predictor()
                predicted = predictor([rollouts[place].problem.prompt for place in places], [row for _, row in known])
                values[places] += ((predicted - predictor.mean) / predictor.spread).float()
                watched["property"] = float(predicted.mean())
        reasons = ["" if molecule is None else molecule[0] for molecule in read]
        return Reasoned(values, reasons, watched)

    def _require_rdkit(self) -> None:
        if not has_rdkit():
            raise UserError(f"rewards.{self.label}: the package rdkit is not installed; install the extra molecules")

    def _predictor(self) -> Predictor:
        return _fitted(self.given[0], self.ridge, f"rewards.{self.label}.measured")


def features_of(targets: Sequence[str], fingerprints: Sequence[Sequence[float]], letters: Sequence[str]) -> Tensor:
    """Return counts, shares of letters, their products and a constant, [molecules, features], float64.

    Args:
        targets: target of each molecule, [molecules].
        fingerprints: counts of each molecule, [molecules][counts].
        letters: letters whose shares are features.
    """
    counts = torch.tensor([list(row) for row in fingerprints], dtype=torch.float64).log1p()
    shares = torch.tensor(
        [[text.count(letter) / max(1, len(text)) for letter in letters] for text in targets], dtype=torch.float64
    ).reshape(len(targets), len(letters))
    products = (counts[:, :, None] * shares[:, None, :]).flatten(1)
    return torch.cat([counts, shares, products, torch.ones(len(targets), 1, dtype=torch.float64)], dim=1)


@lru_cache(maxsize=8)
def _fitted(file: GivenFile, ridge: float, where: str) -> Predictor:
    """Fit the predictor to the measurements in a file, once for each file and penalty; the constant is not penalised.

    Raises:
        UserError: a line is not a measurement of a molecule, or all values are equal.
    """
    targets, fingerprints, values = [], [], []
    for place, line in file.lines(where):
        try:
            row = json.loads(line)
            target, smiles, value = row["target"], row["smiles"], float(row["value"])
        except (ValueError, TypeError, KeyError, RecursionError):
            target, smiles, value = None, None, 0.0
        if not isinstance(target, str) or not isinstance(smiles, str):
            raise UserError(f'{place}: not {{"target": text, "smiles": text, "value": number}}')
        molecule = read_molecule(smiles)
        if molecule is None:
            raise UserError(f"{place}: {smiles[:60]!r} is not a molecule")
        targets.append(target)
        fingerprints.append(molecule[1])
        values.append(value)
    known = torch.tensor(values, dtype=torch.float64)
    if len(values) < 2 or not torch.isfinite(known).all() or float(known.std()) == 0.0:
        raise UserError(f"{where}: {file.file} needs at least two measurements with different finite values")
    letters = tuple(sorted({letter for target in targets for letter in target if not letter.isspace()}))
    design = features_of(targets, fingerprints, letters)
    penalty = torch.full((design.shape[1],), ridge, dtype=torch.float64)
    penalty[-1] = 1e-9
    weights = torch.linalg.solve(design.T @ design + torch.diag(penalty), design.T @ known)
    return Predictor(letters, weights, float(known.mean()), float(known.std()))
