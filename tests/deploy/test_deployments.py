"""Tests of deploy/deployments.yaml, the scheduled flows of the cluster: parameters, overlaps, pool and Ray address."""

import importlib
import inspect
from typing import Any

import pytest
import yaml
from manifests import DEPLOY, ROOT, container_named, read_objects

from models.recipes.files import require_files
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe

CONTENT: dict[str, Any] = yaml.safe_load((DEPLOY / "deployments.yaml").read_text())
DEPLOYMENTS: list[dict[str, Any]] = CONTENT["deployments"]
EACH = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])


@EACH
def test_its_parameters_are_those_of_its_flow_and_its_recipe_can_run(deployment: dict[str, Any]) -> None:

    file, name = deployment["entrypoint"].split(":")
    flow = getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)
    parameters = deployment["parameters"]
    inspect.signature(flow.fn).bind(**parameters)
    recipe = load_recipe(parameters["recipe"], parameters["overrides"])
    assert find_recipe(parameters["recipe"]).is_file()
    require_files(recipe)
    recipe.placement.check(parameters.get("cluster"))
    assert recipe.placement.placed == ("cluster" in parameters)


@EACH
def test_one_that_overlaps_the_one_before_is_cancelled(deployment: dict[str, Any]) -> None:
    assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    assert len(deployment["schedules"]) == 1


@EACH
def test_it_goes_to_the_pool_of_the_worker_in_the_folder_where_that_starts(deployment: dict[str, Any]) -> None:
    worker = container_named(read_objects(), "prefect-worker")
    assert f"--pool={deployment['work_pool']['name']}" in worker["command"]
    assert deployment["work_pool"]["job_variables"]["working_dir"] == worker["workingDir"]
    assert CONTENT["pull"] == [{"prefect.deployments.steps.set_working_directory": {"directory": worker["workingDir"]}}]
    from prefect.workers.process import ProcessWorker

    known = ProcessWorker.get_default_base_job_template()["variables"]["properties"]
    assert set(deployment["work_pool"]["job_variables"]) <= set(known)


def test_they_join_ray_where_the_head_listens() -> None:
    head = container_named(read_objects(), "ray-head")
    (port,) = [port["containerPort"] for port in head["ports"] if port["name"] == "gcs-server"]
    addresses = {deployment["parameters"].get("cluster") for deployment in DEPLOYMENTS}
    assert addresses == {f"127.0.0.1:{port}", None}


def test_one_machine_has_a_pool_of_its_own() -> None:
    served = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    pools = {deployment["work_pool"]["name"] for deployment in served}
    assert pools.isdisjoint({deployment["work_pool"]["name"] for deployment in DEPLOYMENTS})
