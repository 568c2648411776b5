"""The command `rewardflow base list`."""

from __future__ import annotations


def list_() -> None:
    """List the base models of the catalogue, and those on this machine that were converted from other GGUF files.

    Example: `rewardflow base list`
    """
    from models.policies.base_models.listing import as_text, listing

    print(as_text(listing()))
