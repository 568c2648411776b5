"""Find the file of a recipe by its name. Nothing large is imported, so that a misspelt name is reported at once."""

from __future__ import annotations

import difflib
from pathlib import Path

from models.base.errors import UserError, shortened

FOLDER = Path("recipes")
"""Folder searched by `rewardflow run NAME` and `extends: NAME`: first itself, then its folders, one for each family."""
REAL = "real"
"""Folder of the recipes that need a pretrained model."""


def recipe_names() -> list[str]:
    """Return the names of all recipes in recipes/ and below, the uppermost first; none if the folder does not exist."""
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return list(dict.fromkeys(file.stem for file in files))


def method_files(folder: Path = FOLDER) -> list[Path]:
    """Return the files of all recipes of methods, by name: those in real/ need a pretrained model and are left out."""
    files = (file for file in folder.rglob("*.yaml") if file.relative_to(folder).parts[0] != REAL)
    return sorted(files, key=lambda file: file.stem)


def find_recipe(path: str | Path) -> Path:
    """Return the file that `path` means; a bare name is looked for in recipes/ and in the folders below it.

    Raises:
        UserError: there is none; the message names the nearest recipe.
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
