"""File `use.json` of a policy that is not used by its weights and the plain prompt alone.

    after_prompt   token ids between every prompt and its completion, and the same as text
    gated          a gate in `gate/` decides at every token whether the policy writes it or the reference in that folder
    mask_top_p     the policy writes only tokens among the likeliest of the lagged policy in `mask/`, which have this
                   much probability

Policies that need none of these have no such file. Every caller that draws completions of a model folder reads it, so
that runs of other recipes also measure a policy in its intended use.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from models.base.errors import UserError

USE = "use.json"
GATE = "gate"
"""Folder of a gated policy's gate and reference, in its model folder."""
MASK = "mask"
"""Folder of the lagged policy of a masked policy, in its model folder."""


@dataclass(frozen=True)
class PolicyUse:
    """Everything that drawing a policy's completions needs in addition to its weights and the plain prompt."""

    after_prompt: tuple[int, ...] = ()
    """Token ids between prompt and completion, [tokens]."""
    text: str = ""
    """The same ids as text, for readers."""
    gated: bool = False
    """Whether the policy writes by turns with the reference in `gate/`."""
    mask_top_p: float = 1.0
    """Total probability, by the lagged policy in `mask/`, of the tokens that may be drawn; 1: no mask."""


def write_use(folder: Path, use: PolicyUse) -> None:
    """Write `use` into a model folder."""
    (folder / USE).write_text(json.dumps(asdict(use), indent=1) + "\n", encoding="utf-8")


def read_use(folder: Path) -> PolicyUse:
    """Read how the policy in `folder` is used; defaults without a file.

    Raises:
        UserError: the file is broken, or of a later version.
    """
    file = folder / USE
    if not file.is_file():
        return PolicyUse()
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        use = PolicyUse(**settings)
        if not 0 < float(use.mask_top_p) <= 1:
            raise ValueError(f"mask_top_p is {use.mask_top_p}")
        return PolicyUse(
            tuple(int(token) for token in use.after_prompt), str(use.text), bool(use.gated), float(use.mask_top_p)
        )
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: it does not say how the policy is used ({error})") from None
