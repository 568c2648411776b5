"""Find the file of a recipe by its name. Nothing large is imported, so that a misspelt name is reported at once."""

from __future__ import annotations

import difflib
from pathlib import Path

from models.base.errors import UserError, shortened
from models.base.package_files import PROJECT

FOLDER = Path("recipes")
"""Folder searched by `rewardflow run NAME` and `extends: NAME`: first itself, then its folders, one for each family."""
PACKAGED = PROJECT / "recipes"
"""Folder of the package's own recipes, which is searched afterwards: the two differ outside a clone."""
REAL = "real"
"""Folder of the recipes that need a pretrained model."""


def recipe_names() -> list[str]:
    """Return the names of all recipes in recipes/ and below, the uppermost first, and then those of the package."""
    files = [file for folder in (FOLDER, PACKAGED) for file in sorted(folder.rglob("*.yaml"), key=_uppermost_first)]
    return list(dict.fromkeys(file.stem for file in files))


def method_files(folder: Path = FOLDER) -> list[Path]:
    """Return the files of all recipes of methods, by name: those in real/ need a pretrained model and are left out."""
    files = (file for file in folder.rglob("*.yaml") if file.relative_to(folder).parts[0] != REAL)
    return sorted(files, key=lambda file: file.stem)


def find_recipe(path: str | Path) -> Path:
    """Return the file that `path` means; a bare name is looked for in recipes/ and below it, then in the package.

    Raises:
        UserError: there is none; the message names the nearest recipe.
    """
    folders = [FOLDER] if FOLDER.resolve() == PACKAGED else [FOLDER, PACKAGED]
    for candidate in (Path(path), *(folder / name for folder in folders for name in (f"{path}.yaml", str(path)))):
        try:
            if candidate.is_file():
                return candidate
        except OSError as error:  # a name that no file system takes
            raise UserError(f"{shortened(path)}: no such recipe ({error.strerror})") from None
    known = {
        file.stem: file
        for folder in reversed(folders)
        for file in sorted(folder.rglob("*.yaml"), key=_uppermost_first, reverse=True)  # the uppermost counts
    }
    if str(path) in known:
        return known[str(path)]
    near = difflib.get_close_matches(Path(path).stem, sorted(known), n=1)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    raise UserError(f"{shortened(path, 120)}: no such recipe{hint}")


def _uppermost_first(file: Path) -> tuple[int, Path]:
    return len(file.parts), file
