"""Retries by Prefect: only unexpected failures are tried again, in every task that needs the network."""

import pytest
from prefect import Task
from prefect.states import Completed, Failed, State

from models.base.errors import UserError
from tasks.runner.unexpected import is_unexpected
from tasks.steps.prepare_data import prepare_data
from tasks.steps.promote import promote
from tasks.steps.upload_reports import upload_reports


@pytest.mark.parametrize(
    ("state", "again"),
    [
        (Failed(data=UserError("wrong key")), False),
        (Failed(data=ConnectionError("away")), True),
        (Completed(data=1), False),
    ],
)
def test_only_what_nobody_wrote_wrongly_is_tried_again(state: State[int], again: bool) -> None:
    assert is_unexpected(None, None, state) is again


@pytest.mark.parametrize("task", [prepare_data, promote, upload_reports], ids=lambda task: task.name)
def test_every_task_that_needs_the_network_is_tried_again(task: Task[..., object]) -> None:
    assert (task.retries, task.retry_condition_fn) == (3, is_unexpected)
    assert task.retry_delay_seconds == [2, 4, 8]
