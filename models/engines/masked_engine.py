"""Generation with a policy that writes within the mask of its lagged copy (NLPO, RL4LMs; paper 4).

The model folder of the policy holds the lagged copy in `mask/` (`models.policies.use`). Decoding is that of
`models.engines.decoding_loop`, as during training; the published code generates so at evaluation too.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from models.engines.transformers_engine import TransformersEngine
from models.engines.voice import Voice
from models.policies.use import MASK, read_use


class MaskedEngine(TransformersEngine):
    """Engine with the policy and lagged policy of a model folder; see `models.engines.engine.Engine`.

    `score` and `load` are those of the policy: the lagged policy does not change.

    Raises:
        UserError: the folder is not a model folder, or the lagged policy is missing or broken.
    """

    def read_extra_files(self, folder: Path, trust_remote_code: bool) -> None:
        """Load the lagged policy, and the total probability (top-p) of its mask."""
        self.top_p = read_use(folder).mask_top_p
        self.lagged = self.read_model(folder / MASK, trust_remote_code)

    def voices(self) -> list[Voice]:
        """Return the policy, and the lagged policy, which only has a veto."""
        return [*super().voices(), Voice(lambda: nullcontext(self.lagged), veto_top_p=self.top_p)]

    def close(self) -> None:
        """See `Engine.close`."""
        del self.lagged
        super().close()
