"""Check that the packages flows, tasks and models are Rewardflow's own: other packages may have these names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

NAMES = ("flows", "tasks", "models")


def require_own_packages(root: Path | None = None) -> None:
    """Check that `import flows`, `tasks` and `models` import the packages that were installed with this one.

    Args:
        root: folder that has them; None: that of this package.

    Raises:
        ImportError: another package of the name comes first on the path, or a package is missing.
    """
    root = root or Path(__file__).resolve().parents[1]
    for name in NAMES:
        spec = find_spec(name)
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
        if root / name in places:
            continue
        file = (places[0] if places else spec.origin) if spec else None
        what = f"imports {file}" if file else "is not installed"
        raise ImportError(
            f"rewardflow: its package {name!r} {what} instead of {root / name}; remove or rename the other package, or "
            "put Rewardflow first on sys.path"
        )
