"""Generation with a gated policy: a gate decides whether the policy or its reference writes (STG; paper 12).

The model folder of the policy holds a folder `gate/` with the weights of the reference and the gate
(`models.policies.use`). Decoding is that of `models.engines.decoding_loop`, as during training. At temperature zero the
likelier writer writes its likeliest token.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.base.device import device
from models.base.errors import UserError
from models.engines.decoding_loop import Switch
from models.engines.transformers_engine import TransformersEngine
from models.engines.voice import Voice
from models.learner.log_probs import hidden_width
from models.policies.use import GATE

HEAD = "gate.safetensors"
REFERENCE = "reference"


def switch_of(head: nn.Module) -> Switch:
    """Build a switch from a gate's probability of the first voice; without random points, the likelier voice writes.

    Args:
        head: states [rows, hidden] -> log-odds that the first voice writes, [rows, 1].
    """
    dtype = next(head.parameters()).dtype

    def first_writes(states: Tensor, points: Tensor | None) -> Tensor:
        chance: Tensor = head(states.to(dtype)).squeeze(-1).sigmoid()
        if points is None:
            return chance >= 0.5
        # points are in [0, 1): a chance of exactly 1 is always taken, one of exactly 0 never
        return torch.lt(points, chance.double())

    return first_writes


def save_gate(head: nn.Linear, folder: Path) -> None:
    """Write the gate's weights into `folder`, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().contiguous() for name, value in head.state_dict().items()}, folder / HEAD)


class GatedEngine(TransformersEngine):
    """Engine with the policy, reference and gate of a model folder; see `models.engines.engine.Engine`.

    `score` and `load` are those of the policy: reference and gate do not change.

    Raises:
        UserError: the folder is not a model folder, or its gate or reference is missing or broken.
    """

    def read_extra_files(self, folder: Path, trust_remote_code: bool) -> None:
        """Load the reference and the gate."""
        self.reference = self.read_model(folder / GATE / REFERENCE, trust_remote_code)
        self.head = nn.Linear(hidden_width(self.reference), 1)
        try:
            self.head.load_state_dict(load_file(folder / GATE / HEAD))
        except (OSError, RuntimeError) as error:
            raise UserError(f"{folder / GATE / HEAD}: the gate cannot be read ({str(error).splitlines()[0]})") from None
        self.head.to(device()).requires_grad_(False)

    def switch(self) -> Switch:
        """Return the switch of the gate."""
        return switch_of(self.head)

    def voices(self) -> list[Voice]:
        """Return the policy and the reference, which write by turns."""
        return [*super().voices(), Voice(lambda: nullcontext(self.reference))]

    def close(self) -> None:
        """See `Engine.close`."""
        del self.reference, self.head
        super().close()
