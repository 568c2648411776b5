"""Refusal of models whose code is not trusted."""

from __future__ import annotations

from pathlib import Path

from models.base.errors import UserError


def refuse_untrusted(error: Exception, name: str | Path) -> None:
    """Raise an error in the recipe's terms if transformers refused to run code that a model ships.

    Raises:
        UserError: `error` is such a refusal.
    """
    if "custom code" in str(error):
        raise UserError(f"{name}: ships code of its own; read it, then set policy.trust_remote_code: true") from None
