"""Addresses that the environment names hold no password: they stand in logs, messages, pages and tags."""

from __future__ import annotations

import re

from models.errors import UserError

INSTEAD = {
    "MLFLOW_TRACKING_URI": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "PREFECT_API_URL": "PREFECT_API_AUTH_STRING, or PREFECT_API_KEY for Prefect Cloud",
}
"""Where each server's login goes, by the variable that names the server."""


def required(variable: str, address: str) -> str:
    """The address, of which a server's holds no login; a database's may, and is shown by `shown`.

    Raises:
        UserError: it does. It is not repeated.
    """
    if "@" in address and address.strip().lower().startswith(("http:", "https:")):
        raise UserError(
            f"{variable} must be an address like http://host:port, without user or password: "
            f"those go into {INSTEAD[variable]}"
        )
    return address


def shown(address: str) -> str:
    """An address as it may be read by anybody: without user, password and what stands behind a question mark."""
    if address.startswith("sqlite:"):  # a file, whose name may have any of these
        return address
    return re.sub("://.*@", "://***@", address).partition("?")[0]
