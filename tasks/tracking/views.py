"""A saved view of the list of runs in MLflow's UI, with columns, filter and order, that all users share.

MLflow's UI keeps columns per browser, unless a view is saved: a tag of the experiment whose name ends with the key in
`viewStateShareKey=` of an address. Its value is the state that the UI itself writes there when a person presses "Share"
(read in the UI of MLflow 3.17).
"""

from __future__ import annotations

import json
import time

from tasks.tracking import store, tags
from tasks.tracking.summaries import page_of

PREFIX = "mlflow.sharedViewState."
"""MLflow's tag on an experiment, followed by the key of a view."""
KEY = "promotions"
"""Key of the view."""
TITLE = "Which runs promoted what"
"""Its name in the UI's list of saved views."""
ACCURACY = "accuracy"
"""Metric of a flow's run: the candidate's sampled accuracy on the problems that people may look at."""

_COLUMNS = {
    f"tags.`{tags.RUN_VERDICT}`": 130,
    f"tags.`{tags.RUN_DIFFERENCE}`": 170,
    f"tags.`{tags.RUN_VERSION}`": 80,
    f"metrics.`{ACCURACY}`": 100,
    f"tags.`{tags.RUN_DATA}`": 100,
    f"tags.`{tags.GIT_COMMIT}`": 160,
}
"""Columns in their order, with their width in pixels."""


def promotions(experiment: str) -> str:
    """Return the path of the view below the server's address; save it on the experiment (an id) if it differs there."""
    name, state = f"{PREFIX}{KEY}", json.dumps(_state())
    saved = store.patiently(store.client().get_experiment, experiment).tags.get(name, "{}")
    if json.loads(saved).get("state") != state:
        now = int(time.time() * 1000)
        entry = {"name": TITLE, "createdAt": now, "updatedAt": now, "state": state}
        store.patiently(store.client().set_experiment_tag, experiment, name, json.dumps(entry))
    return f"{page_of(experiment)}&viewStateShareKey={KEY}"


def promotions_hint(run_id: str) -> str:
    """Return the path of the view of the experiment that a run is in; see `promotions`."""
    return promotions(store.patiently(store.client().get_run, run_id).info.experiment_id)


def _state() -> dict[str, object]:
    """Return the view of flows' runs that were judged, newest first; other settings are the UI's defaults."""
    return {
        "searchFilter": f"tags.`{tags.RUN_VERDICT}` != ''",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(_COLUMNS),
        "columnOrder": ["attributes.`Run Name`", *_COLUMNS],
        "columnWidths": {"attributes.`Run Name`": 330, **_COLUMNS},
    }
