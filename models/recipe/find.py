"""Which file a recipe's name means. It imports nothing large: a misspelt name is told at once."""

from __future__ import annotations

import difflib
from pathlib import Path

from models.errors import UserError

FOLDER = Path("recipes")
"""Where `rewardflow run NAME` and `extends: NAME` look."""


def find_recipe(path: str | Path) -> Path:
    """The file that `path` means; a bare name is looked for in recipes/.

    Raises:
        UserError: there is none; names the nearest one that there is.
    """
    for candidate in (Path(path), FOLDER / f"{path}.yaml", FOLDER / str(path)):
        if candidate.is_file():
            return candidate
    known = sorted(file.stem for file in FOLDER.glob("*.yaml"))
    near = difflib.get_close_matches(Path(path).stem, known, n=1)
    hint = f"; did you mean {FOLDER / near[0]}.yaml?" if near else ""
    raise UserError(f"{path}: no such recipe{hint}")
