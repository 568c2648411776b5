"""A webhook of MLflow's server that notifies Rewardflow when a tag of a model version is set."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.tracking import store

_LOG = logging.getLogger(__name__)

NAME = "rewardflow-approvals"
"""Beginning of a webhook's name; a hash of its address follows, so that each receiver has its own."""


@contextmanager
def open_webhook(address: str) -> Iterator[str]:
    """Register a webhook that posts to `address` when a version's tag is set; yield "" or the reason for a failure.

    It is deleted at the end of the block.

    The webhook has no secret: MLflow encrypts secrets with a key that it generates at each start, unless it is given
    one, and the receiver of a delivery does not trust its contents.
    """
    from mlflow import MlflowException

    name = f"{NAME}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
    client = store.client()
    try:
        for known in client.list_webhooks(max_results=100):
            if known.name == name:  # left by a receiver that was killed
                client.delete_webhook(known.webhook_id)
        made = client.create_webhook(name=name, url=address, events=["model_version_tag.set"])
    except (MlflowException, OSError) as error:
        yield " ".join(str(error).split())
        return
    try:
        yield ""
    finally:
        try:
            client.delete_webhook(made.webhook_id)
        except (MlflowException, OSError) as error:
            _LOG.warning("MLflow's webhook %s stays: %s", name, error)
