"""The Prefect run of a flow: its name, its artifacts with the result, and the links between it and the MLflow run."""

from __future__ import annotations

import logging

from flows.servers.temporary_server import is_temporary
from tasks.host.plain_address import required

_LOG = logging.getLogger("rewardflow")


def require_plain_address() -> None:
    """Check that the Prefect server's address, from environment or profile, has no password: logs and links show it.

    Raises:
        UserError: the address has a password.
    """
    from prefect.settings import PREFECT_API_URL

    required("PREFECT_API_URL", str(PREFECT_API_URL.value() or ""))


def address() -> str:
    """Return the page of this flow run in Prefect's UI; "" outside a flow run, or if the server is temporary."""
    from prefect.runtime import flow_run

    return "" if flow_run.id is None or is_temporary() else str(flow_run.ui_url)


def deployment() -> str:
    """Return the name of the deployment of this flow run; "" for a run without a deployment."""
    from prefect.runtime import deployment, flow_run

    try:
        return "" if flow_run.id is None or deployment.id is None else str(deployment.name)
    except Exception as error:  # a server that is briefly unreachable does not stop a run
        _LOG.warning("Prefect does not report the deployment of this run: %s", " ".join(str(error).split())[:200])
        return ""


def link_to(page: str) -> None:
    """Show the address of the MLflow run on the Prefect run while it is running."""
    from prefect.artifacts import create_link_artifact
    from prefect.runtime import flow_run

    if flow_run.id is not None:
        create_link_artifact(link=page, link_text="The run in MLflow", key="mlflow-run")


def describe(name: str, description: str, page: str) -> None:
    """Rename the Prefect run to `name`, a summary of its result, and add `description` to it as an artifact.

    An error here never stops a flow whose work is done: it is logged.

    Args:
        description: Markdown.
        page: address of the MLflow run.
    """
    from prefect.artifacts import create_markdown_artifact
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, name=name)
        text = f"[The run in MLflow]({page})\n\n{description}"
        create_markdown_artifact(markdown=text, key="verdict", description=name)
    except Exception as error:
        _LOG.warning("Prefect does not show the verdict: %s", " ".join(str(error).split())[:200])
