"""Models of the Hugging Face hub: the model that a hub id means, and one quick check of its availability.

    OWNER/NAME            the current model of that name on the hub
    OWNER/NAME@COMMIT     a fixed version: a commit of 40 hexadecimal digits, as on the model's page

Without a network, the error is one line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from models.base.errors import UserError, shortened
from models.policies.folder import given_folder

HUB_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?)(?:@(?P<commit>[0-9a-f]{40}))?")
PATIENCE = 5.0
"""Timeout of the hub, seconds."""


class ModelName(NamedTuple):
    """The name of a model, as transformers takes it."""

    name: str
    """Folder or hub id."""
    commit: str | None
    """Commit on the hub; None: a folder, or the newest."""

    @property
    def revision(self) -> str:
        """Revision argument for transformers."""
        return self.commit or "main"


def origin_of(base: str | Path) -> ModelName:
    """Parse the name of a base model: an existing folder, or else a hub id with or without a commit.

    Raises:
        UserError: see `given_folder`.
    """
    folder = given_folder(str(base))
    known = HUB_ID.fullmatch(str(base)) if folder is None else None
    return ModelName(known["name"], known["commit"]) if known else ModelName(str(folder or base), None)


def unpinned_base(base: str) -> str:
    """Return a message that a hub id does not fix one version of a model; "" if it names a commit."""
    name, commit = origin_of(base)
    if commit:
        return ""
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(name, "config.json")
    known = f"{Path(file).parent.name}, which is in the cache" if isinstance(file, str) else "the commit of its page"
    return f"policy.base: {name} is whatever the hub has under that name; write {name}@COMMIT ({known})"


def check_hub_id(base: str) -> None:
    """Check that the model of a hub id is in the cache or on the hub.

    Raises:
        UserError: the id is malformed, the model does not exist, or the hub cannot be reached.
    """
    if not HUB_ID.fullmatch(base):
        raise UserError(
            f"policy.base: {shortened(base)!r} is neither a folder nor a hub id, which is OWNER/NAME, or "
            "OWNER/NAME@COMMIT with all 40 digits of the commit"
        )
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    name, commit = origin_of(base)
    if isinstance(try_to_load_from_cache(name, "config.json", revision=commit), str):
        return
    if constants.HF_HUB_OFFLINE:
        raise UserError(
            f"policy.base: {base} is not a local folder, and as a hub id it is not in the cache while "
            "HF_HUB_OFFLINE is set"
        )
    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=commit), timeout=PATIENCE)
    except GatedRepoError:
        raise UserError(f"policy.base: {base} is gated; accept its terms on the hub and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise UserError(
            f"policy.base: {base}: no such folder here and no such model on the hub (a private one needs HF_TOKEN)"
        ) from None
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        raise UserError(f"policy.base: {base}: the hub answers {status} for its config.json") from None
    except Exception as error:  # any error of the hub's client without a network
        raise UserError(
            f"policy.base: {base} is not a local folder and not in the cache, and the hub cannot be reached "
            f"({type(error).__name__}); name a local folder"
        ) from None
