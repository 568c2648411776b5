"""A policy that writes within the mask of a lagged copy of itself (NLPO, RL4LMs; paper 4): how such a policy is used.

The model folder of the policy holds the lagged copy in `mask/` (`models.policy.use`). Drawing goes by
`models.engine.decoding_loop`, as it did while the policy learned; the published code generates so at evaluation too.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from models.engine.decoding_loop import Voice
from models.engine.transformers_engine import TransformersEngine
from models.policy.use import MASK, read_use


class MaskedEngine(TransformersEngine):
    """Policy and lagged policy of a model folder; see `models.engine.engine.Engine`.

    `score` and `load` are the policy's own: the lagged policy stays as it was read.

    Raises:
        UserError: the folder is no model folder, or the lagged policy is missing or broken.
    """

    def read_beside(self, folder: Path, trust_remote_code: bool) -> None:
        """The lagged policy and its say."""
        self.top_p = read_use(folder).mask_top_p
        self.lagged = self.read_model(folder / MASK, trust_remote_code)

    def voices(self) -> list[Voice]:
        """The policy under the lagged policy's veto."""
        return [*super().voices(), Voice(lambda: nullcontext(self.lagged), veto_top_p=self.top_p)]

    def close(self) -> None:
        """See `Engine.close`."""
        del self.lagged
        super().close()
