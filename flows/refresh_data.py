"""The flow that updates a recipe's data with DVC, validates them, and pushes the version to the remote."""

from __future__ import annotations

from prefect import flow

from flows.runtime.data_steps import call_preparation, call_validation
from flows.runtime.opening import open_flow
from flows.runtime.parameters import Overrides, RecipeName
from flows.schedule.new_data import announce
from tasks.data import versions
from tasks.tracking import records, runs


@flow(name="refresh data", flow_run_name="refresh data {recipe}")
def refresh_data(recipe: RecipeName, overrides: Overrides = None) -> str:
    """Bring the data of a recipe up to date, validate them and push them to the DVC remote. Returns their digest.

    If no training of the recipe has read this version, an event is sent that starts deployments with a trigger on it.

    Args:
        recipe: path or name of a recipe.
        overrides: `key.path=value` each.
    """
    with open_flow("refresh data", recipe, overrides or []) as opened:
        data = call_preparation(opened)
        prepared, version = data.result, data.version
        validated = call_validation(opened, data)
        versions.push(opened.root, version.name)
        state = "unchanged" if prepared.reused else "made again"
        runs.rename(opened.run_id, f"data {state}: {version.digest[:8]}")
        sent = " No training has read this version yet: the event for it was sent." if announce(opened, version) else ""
        records.describe(
            opened.run_id,
            f"## Data {state}\n\n{prepared.headline}; {validated.headline}; pushed to the DVC remote.{sent}\n",
        )
        return version.digest
