"""The Prefect event that reports new data, and starts deployments that have a trigger on it."""

from __future__ import annotations

from flows.runtime.opening import FlowContext
from tasks.data.versions import DataVersion
from tasks.tracking import data_use

EVENT = "rewardflow.new-data-version"
"""Name of the event, which the triggers of prefect.yaml expect."""


def announce(opened: FlowContext, version: DataVersion) -> bool:
    """Send the event for a data version unless a training of the recipe has read it. Return whether it was sent.

    The decision uses MLflow's records, not the last run: if no server received an event, the next run sends it again.
    """
    from prefect.events import emit_event

    name = opened.recipe.data.name
    if data_use.has_training_on(opened.recipe.name, version.digest):
        return False
    emit_event(
        EVENT,
        resource={"prefect.resource.id": f"rewardflow.data.{name}", "prefect.resource.name": f"data {name}"},
        payload={"digest": version.digest, "revision": version.revision, "recipe": opened.recipe.name},
    )
    return True
