"""The event by which Prefect's server learns of new data, so that a deployment with a trigger on it begins."""

from __future__ import annotations

from flows.runtime.opening import Opened
from tasks.data.versions import DataVersion
from tasks.tracking import data_use

EVENT = "rewardflow.new-data-version"
"""Its name, which the triggers of prefect.yaml expect."""


def announce(opened: Opened, version: DataVersion) -> bool:
    """Send the event for a version of the data that no training of the recipe has read yet; True where it was sent.

    It is asked of MLflow and not of what the last run saw: an event that no server took is sent again by the next run.
    """
    from prefect.events import emit_event

    name = opened.recipe.data.name
    if data_use.begun_on(opened.recipe.name, version.digest):
        return False
    emit_event(
        EVENT,
        resource={"prefect.resource.id": f"rewardflow.data.{name}", "prefect.resource.name": f"data {name}"},
        payload={"digest": version.digest, "revision": version.revision, "recipe": opened.recipe.name},
    )
    return True
