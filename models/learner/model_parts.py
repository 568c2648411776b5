"""The parts of a policy that reads images, by the names of its weights in the supported families."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import nn

Part = Literal["language", "connector", "vision"]
ALL_PARTS: tuple[Part, ...] = ("language", "connector", "vision")
_CONNECTOR = re.compile(r"(^|\.)(connector|multi_modal_projector|visual\.(merger|deepstack_merger_list))(\.|$)")
_VISION = re.compile(r"(^|\.)(vision_model|vision_tower|visual)(\.|$)")


def part_of(name: str) -> Part:
    """Return the part that a module or a weight belongs to, by its name."""
    if _CONNECTOR.search(name):
        return "connector"
    return "vision" if _VISION.search(name) else "language"


def only_language_learns(model: nn.Module) -> bool:
    """Return whether weights of the language model learn, and those that read images do not."""
    learning = {part_of(name) for name, weight in model.named_parameters() if weight.requires_grad}
    return learning == {"language"}
