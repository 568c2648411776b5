"""The deployments of prefect.yaml, as data: the flow of each, its schedules and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError

from flows.schedule.silence import Schedules
from models.base.errors import UserError


class CronSchedule(BaseModel):
    """Times of runs, in cron's five fields."""

    cron: str
    timezone: str = "UTC"


class ConcurrencyLimit(BaseModel):
    """Maximum number of concurrent runs of one deployment, and what happens to a further run."""

    limit: int = Field(gt=0)
    collision_strategy: Literal["ENQUEUE", "CANCEL_NEW"] = "ENQUEUE"


class Deployment(BaseModel):
    """One entry of `deployments:` in prefect.yaml; keys that only a work pool needs are ignored."""

    name: str
    entrypoint: str
    """File of the flow and its function, `flows/train.py:train`, relative to the folder of prefect.yaml."""
    description: str = ""
    parameters: dict[str, Any] = {}
    schedules: list[CronSchedule] = []
    triggers: list[Any] = []
    """Events that start a run, in the form of Prefect's docs."""
    concurrency_limit: ConcurrencyLimit | None = None
    tags: list[str] = []
    enforce_parameter_schema: bool = True
    """Whether parameters must be values that the form offers; a recipe outside recipes/, for example, needs False."""


class _File(BaseModel):
    deployments: list[Deployment] = Field(min_length=1)


def read_deployments(path: Path) -> list[Deployment]:
    """Return the deployments of a prefect.yaml.

    Raises:
        UserError: the file is missing or not valid YAML, an entry lacks a key or has a wrong value, or the file of a
            flow is missing.
    """
    try:
        content = yaml.safe_load(path.read_text())
        deployments = _File.model_validate(content).deployments
    except FileNotFoundError:
        raise UserError(f"{path} is not there; run this in the folder that holds prefect.yaml") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from None
    for deployment in deployments:
        file = path.parent / deployment.entrypoint.rpartition(":")[0]
        if not file.is_file():
            raise UserError(f"{path}: the entrypoint of {deployment.name} names {file}, which is not there")
    return deployments


def first_problem(error: ValidationError, above: tuple[str, ...] = ()) -> str:
    """Return the first problem of a validation: its keys, after those in `above`, and the error."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, (*above, *first['loc']))) or 'the file'}: {first['msg']}"


def schedules_of(deployments: Sequence[Deployment]) -> dict[str, Schedules]:
    """Return name -> schedules, for the deployments that have any."""
    return {it.name: [(when.cron, when.timezone) for when in it.schedules] for it in deployments if it.schedules}
