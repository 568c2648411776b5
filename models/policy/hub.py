"""Whether a hub id can be had, asked once and quickly: a machine without a network is told so in one line."""

from __future__ import annotations

import re

from models.errors import UserError, shortened

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?")
PATIENCE = 5.0
"""Seconds that the hub has to answer."""


def check_hub_id(base: str) -> None:
    """Make sure that the model of a hub id is in the cache or on the hub.

    Raises:
        UserError: it is no id, there is no such model, or the hub cannot be reached.
    """
    if not HUB_ID.fullmatch(base):
        raise UserError(f"policy.base: {shortened(base)!r} is neither a folder nor a hub id, which is OWNER/NAME")
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if isinstance(try_to_load_from_cache(base, "config.json"), str):
        return
    if constants.HF_HUB_OFFLINE:
        raise UserError(
            f"policy.base: {base} is no folder here, and as a hub id it is not in the cache while HF_HUB_OFFLINE is set"
        )
    try:
        get_hf_file_metadata(hf_hub_url(base, "config.json"), timeout=PATIENCE)
    except GatedRepoError:
        raise UserError(f"policy.base: {base} is gated; accept its terms on the hub and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise UserError(
            f"policy.base: {base}: no such folder here and no such model on the hub (a private one needs HF_TOKEN)"
        ) from None
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        raise UserError(f"policy.base: {base}: the hub answers {status} for its config.json") from None
    except Exception as error:  # whatever the hub's client makes of a network that is not there
        raise UserError(
            f"policy.base: {base} is no folder here and not in the cache, and the hub cannot be reached "
            f"({type(error).__name__}); name a local folder"
        ) from None
