"""Which file a recipe's name means. It imports nothing large: a misspelt name is told at once."""

from __future__ import annotations

import difflib
from pathlib import Path

from models.errors import UserError, shortened

FOLDER = Path("recipes")
"""Where `rewardflow run NAME` and `extends: NAME` look: in it, then in its folders, such as recipes/real/."""


def recipe_names() -> list[str]:
    """Names of all recipes in recipes/ and below, the uppermost first; none where there is no such folder."""
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return list(dict.fromkeys(file.stem for file in files))


def find_recipe(path: str | Path) -> Path:
    """The file that `path` means; a bare name is looked for in recipes/ and in the folders below it.

    Raises:
        UserError: there is none; names the nearest one that there is.
    """
    for candidate in (Path(path), FOLDER / f"{path}.yaml", FOLDER / str(path)):
        try:
            if candidate.is_file():
                return candidate
        except OSError as error:  # a name that no file system takes
            raise UserError(f"{shortened(path)}: no such recipe ({error.strerror})") from None
    known = {file.stem: file for file in sorted(FOLDER.rglob("*.yaml"), reverse=True)}  # the uppermost counts
    if str(path) in known:
        return known[str(path)]
    near = difflib.get_close_matches(Path(path).stem, sorted(known), n=1)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    raise UserError(f"{shortened(path, 120)}: no such recipe{hint}")
