"""Checks that server addresses contain no passwords: addresses are shown in logs, messages, pages and tags."""

from __future__ import annotations

import re

from models.base.errors import UserError

INSTEAD = {
    "MLFLOW_TRACKING_URI": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "PREFECT_API_URL": "PREFECT_API_AUTH_STRING, or PREFECT_API_KEY for Prefect Cloud",
}
"""Variable with a server's address -> variables for the login to that server."""


def required(variable: str, address: str) -> str:
    """Return `address`, or raise UserError if it is a server's and contains a login.

    The address of a database may contain one; show it with `shown`.

    Raises:
        UserError: a server's address contains a login. The message does not repeat it.
    """
    if "@" in address and address.strip().lower().startswith(("http:", "https:")):
        raise UserError(
            f"{variable} must be an address like http://host:port, without user or password: "
            f"those go into {INSTEAD[variable]}"
        )
    return address


def shown(address: str) -> str:
    """Return an address without user and password, and without everything after a question mark."""
    if address.startswith("sqlite:"):  # a file, whose name may have any of these
        return address
    return re.sub("://.*@", "://***@", address).partition("?")[0]
