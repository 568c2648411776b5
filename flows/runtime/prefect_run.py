"""What Prefect shows of a flow's run: what came out, in its name and as artifacts, and the way to MLflow; and back."""

from __future__ import annotations

import logging

from flows.servers.temporary_server import is_temporary
from tasks.host.plain_address import required

_LOG = logging.getLogger("rewardflow")


def require_plain_address() -> None:
    """Make sure that the server's address holds no password: it stands in logs and links. A profile may name it too.

    Raises:
        UserError: it does.
    """
    from prefect.settings import PREFECT_API_URL

    required("PREFECT_API_URL", str(PREFECT_API_URL.value() or ""))


def address() -> str:
    """The page in Prefect's UI of the flow run that this is; "" outside of one, or where its server ends with it."""
    from prefect.runtime import flow_run

    return "" if flow_run.id is None or is_temporary() else str(flow_run.ui_url)


def deployment() -> str:
    """Name of the deployment that this flow run is of; "" for a run of none."""
    from prefect.runtime import deployment, flow_run

    try:
        return "" if flow_run.id is None or deployment.id is None else str(deployment.name)
    except Exception as error:  # a server that is away for a moment stops no run
        _LOG.warning("Prefect does not say which deployment this is: %s", " ".join(str(error).split())[:200])
        return ""


def link_to(page: str) -> None:
    """Show the address of the MLflow run on the Prefect run, while it goes on."""
    from prefect.artifacts import create_link_artifact
    from prefect.runtime import flow_run

    if flow_run.id is not None:
        create_link_artifact(link=page, link_text="The run in MLflow", key="mlflow-run")


def tell(name: str, description: str, page: str) -> None:
    """Call the Prefect run by what came out, and show the verdict on it.

    Nothing that goes wrong here stops a flow whose work is done: it is said in the log.

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
