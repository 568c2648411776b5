"""Molecules written as SMILES, read by RDKit: whether a text is one, its canonical form, and its fingerprint.

RDKit is an optional package, and is imported when it is first used.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import OrderedDict
from functools import lru_cache
from typing import Any

LONGEST = 300
"""Length in characters beyond which a text is not read as a molecule."""
WIDTH = 128
"""Number of counts of a fingerprint."""
RADIUS = 2
"""Radius of the neighbourhoods that a fingerprint counts, bonds."""
_KEPT = 20_000

_known: OrderedDict[str, tuple[str, tuple[float, ...]] | None] = OrderedDict()


def has_rdkit() -> bool:
    """Return whether RDKit is installed."""
    return importlib.util.find_spec("rdkit") is not None


def written_smiles(completion: str) -> str:
    """Return the SMILES that a completion states: all after its last `####`, or all of it, without spaces."""
    return "".join(completion.rpartition("####")[2].split())


def read_molecule(smiles: str) -> tuple[str, tuple[float, ...]] | None:
    """Return the canonical SMILES of a molecule and its fingerprint, [`WIDTH`]; None if the text is not a molecule.

    The fingerprint counts the circular neighbourhoods of all atoms, folded to `WIDTH` places (Morgan). A text is not a
    molecule if it is empty, longer than `LONGEST`, cannot be parsed, or has an atom with an impossible valence.
    """
    if not smiles or len(smiles) > LONGEST or not smiles.isascii():
        return None
    if smiles in _known:
        _known.move_to_end(smiles)
        return _known[smiles]
    chemistry, generator = _rdkit()
    molecule = chemistry.MolFromSmiles(smiles)
    read = None
    if molecule is not None and molecule.GetNumAtoms() > 0:
        counts = generator.GetCountFingerprint(molecule)
        row = [0.0] * WIDTH
        for place, count in counts.GetNonzeroElements().items():
            row[place] = float(count)
        read = str(chemistry.MolToSmiles(molecule)), tuple(row)
    _known[smiles] = read
    if len(_known) > _KEPT:
        _known.popitem(last=False)
    return read


@lru_cache(maxsize=1)
def _rdkit() -> tuple[Any, Any]:
    """Return RDKit's module of molecules, and a generator of fingerprints; its messages are switched off."""
    chemistry = importlib.import_module("rdkit.Chem")
    importlib.import_module("rdkit.RDLogger").DisableLog("rdApp.*")
    generators = importlib.import_module("rdkit.Chem.rdFingerprintGenerator")
    return chemistry, generators.GetMorganGenerator(radius=RADIUS, fpSize=WIDTH)
