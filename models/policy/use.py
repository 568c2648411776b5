"""How a policy is used where that takes more than its weights: a file beside them, `use.json`.

    after_prompt   token ids that stand between every prompt and its completion, and the same as text
    gated          a gate in `gate/` says at every token whether the policy writes it or the reference that lies there
    mask_top_p     the policy writes only tokens among the likeliest of the lagged policy in `mask/`, which gives these
                   so much probability

Policies that need nothing of it have no such file. Whoever draws completions of a model folder reads it, so that a
policy is measured as it is meant to be used, by the runs of other recipes too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from models.errors import UserError

USE = "use.json"
GATE = "gate"
"""Folder of a gated policy's gate and reference, in its model folder."""
MASK = "mask"
"""Folder of the lagged policy whose mask a policy is used within, in its model folder."""


@dataclass(frozen=True)
class Use:
    """What a policy's completions are drawn with beside the plain prompt and its own weights."""

    after_prompt: tuple[int, ...] = ()
    """Token ids between prompt and completion, [tokens]."""
    text: str = ""
    """The same as text, for a person."""
    gated: bool = False
    """Whether the policy writes by turns with the reference in `gate/`."""
    mask_top_p: float = 1.0
    """Probability that the lagged policy in `mask/` gives the tokens that may be drawn; 1: there is no mask."""


def write_use(folder: Path, use: Use) -> None:
    """Write `use` into a model folder."""
    (folder / USE).write_text(json.dumps(asdict(use), indent=1) + "\n", encoding="utf-8")


def read_use(folder: Path) -> Use:
    """How the policy in `folder` is used; all defaults where nothing is said.

    Raises:
        UserError: the file is broken, or of a later version.
    """
    file = folder / USE
    if not file.is_file():
        return Use()
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        use = Use(**said)
        if not 0 < float(use.mask_top_p) <= 1:
            raise ValueError(f"mask_top_p is {use.mask_top_p}")
        return Use(
            tuple(int(token) for token in use.after_prompt), str(use.text), bool(use.gated), float(use.mask_top_p)
        )
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: it does not say how the policy is used ({error})") from None
