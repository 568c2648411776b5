"""Run nights in one process, on a simulated clock: `python nights_driver.py RECIPE`.

Each line of standard input is {"at": ISO time, "overrides": [...], "train": bool, "grader": text, "approve": version or
null}. For each, a line "NIGHT " and {"decision", "version", "error"} is printed; the first line is "READY". A night
trains and then evaluates the champion, as in prefect.yaml.
"""

import json
import os
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

from flows.evaluate_champion import evaluate_champion
from flows.runtime import console, environment
from flows.schedule.silence import recorded_run
from flows.train import train
from models.base.errors import UserError
from tasks.gate import approval
from tasks.host import clock
from tasks.tracking import store


def live(recipe: str, night: dict[str, Any]) -> dict[str, Any]:
    """Run one night and return its outcome."""
    at = datetime.fromisoformat(night["at"])
    clock.now = lambda: at
    os.environ["GRADER"] = night["grader"]
    home = environment.state_folder()
    if night["approve"] is not None:
        store.configure(home)
        approval.approve("nights-policy", night["approve"], by="Ann", why="samples read")
    said: dict[str, Any] = {"decision": "", "version": None, "error": ""}
    with recorded_run(home, "nightly"):
        try:
            if night["train"]:
                promotion = train(recipe, night["overrides"]).promotion
                assert promotion is not None
                decision = "judged before" if promotion.reused else promotion.decision
                said |= {"decision": decision, "version": promotion.version}
        except UserError as error:
            said["error"] = str(error)
        with suppress(UserError):  # raised before the first champion
            evaluate_champion(recipe, night["overrides"])
    return said


if __name__ == "__main__":
    console.quiet(caller_prints_error=True)
    print("READY", flush=True)
    for line in sys.stdin:
        print("NIGHT", json.dumps(live(sys.argv[1], json.loads(line))), flush=True)
