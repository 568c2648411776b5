"""Tests that the programs accept the commands of the containers and of docs/deploy.md."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from manifests import ROOT, container_named, named, pods, read_objects, title
from ray_cluster import start_command

from tests.support.guide import parse

GUIDE = (ROOT / "docs" / "deploy.md").read_text()


def of_containers(program: str) -> list[list[str]]:
    """Return the arguments with which containers start a program, without a shell before it."""
    commands = []
    for pod in pods(read_objects()):
        for box in pod.containers:
            words = box.get("command", [])
            if words[:2] == ["sh", "-c"]:
                words = shlex.split(words[2].removeprefix("exec "))
            if words[:1] == [program]:
                commands.append(words[1:])
    return commands


def of_the_guide(program: str) -> list[list[str]]:
    """Return the arguments of a program in the guide's commands for the head pod, with broken lines joined."""
    joined = GUIDE.replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(rf"-- +({program} [^\n]+)", joined)]


def test_rewardflows_own() -> None:
    from flows.command_line import app

    commands = of_the_guide("rewardflow")
    said = {parse(typer.main.get_command(app), words) for words in commands}
    assert {"doctor", "data add", "show"} <= said


def test_what_kubectl_is_asked_for_is_there() -> None:
    titles = {title(content).lower() for content in read_objects()}
    asked = set(re.findall(r"\b((?:service|statefulset|deployment|raycluster)/[a-z-]+)", GUIDE))
    asked |= {f"raycluster/{name}" for name in re.findall(r"raycluster ([a-z]+)", GUIDE)}
    assert len(asked) > 4 and asked <= titles
    containers = {box["name"] for pod in pods(read_objects()) for box in pod.containers}
    assert set(re.findall(r"--container=([a-z-]+)", GUIDE)) <= containers
    assert set(re.findall(r"--namespace[ =]([a-z]+)", GUIDE)) == set(named(read_objects(), "Namespace"))
    for name, port in re.findall(r"port-forward service/([a-z]+) (\d+)", GUIDE):
        assert named(read_objects(), "Service")[name]["spec"]["ports"][0]["port"] == int(port)


def test_rest_costs_what_the_guide_says() -> None:
    """Sums over the containers that always run. KubeRay adds the autoscaler's, with the resources of our manifest."""
    asked: dict[str, tuple[float, float]] = {}
    for pod in pods(read_objects()):
        if pod.role not in ("", "head"):
            continue
        parts = [box["resources"]["requests"] for box in pod.lasting]
        if pod.role:
            parts.append(pod.owner["spec"]["autoscalerOptions"]["resources"]["requests"])
        asked[pod.name] = (sum(cpus(part["cpu"]) for part in parts), sum(gibibytes(part["memory"]) for part in parts))
    rows = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([\d.]+ CPU, [\d.]+ GiB) \|", GUIDE, flags=re.MULTILINE))
    says = {name: f"{round(cpu, 3):g} CPU, {memory:g} GiB" for name, (cpu, memory) in asked.items()}
    assert rows["`database`"] == says["StatefulSet/database"]
    assert rows["`mlflow`"] == says["Deployment/mlflow"]
    assert rows["`prefect`"] == says["Deployment/prefect"]
    assert rows["Ray's head"] == says["RayCluster/rewardflow head"]
    cpu, memory = (sum(values) for values in zip(*asked.values(), strict=True))
    assert f"ask for {round(cpu, 3):g} CPUs and {memory:g} GiB together" in GUIDE


def cpus(quantity: str) -> float:
    """Convert a quantity to CPUs: `500m` is half a CPU."""
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def gibibytes(quantity: str) -> float:
    """Convert a quantity to GiB: `512Mi` is half a GiB."""
    return float(quantity[:-2]) / {"Mi": 1024, "Gi": 1}[quantity[-2:]]


def test_ray_reads_the_cluster_as_it_is_meant() -> None:
    """Ray's autoscaler reads no worker at rest, at most `maxReplicas` of them, one GPU each, nothing on the head."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    content = named(read_objects(), "RayCluster")["rewardflow"]
    content["metadata"]["namespace"] = "rewardflow"  # the server adds it
    read = _derive_autoscaling_config_from_ray_cr(content)
    kinds: dict[str, Any] = dict(read["available_node_types"])
    head, workers = kinds.pop(read["head_node_type"]), kinds.pop("gpu")
    assert kinds == {}
    assert head["resources"]["CPU"] == 0 and "GPU" not in head["resources"]
    assert (workers["min_workers"], workers["resources"]["GPU"]) == (0, 1)
    assert workers["max_workers"] == content["spec"]["workerGroupSpecs"][0]["maxReplicas"]
    assert read["idle_timeout_minutes"] == 10


@pytest.mark.thorough
def test_rays_mlflows_and_prefects() -> None:
    from mlflow.cli import cli as mlflow
    from prefect.cli._app import _app as prefect
    from ray.scripts.scripts import cli as ray

    commands = of_containers("mlflow")
    assert [parse(mlflow, words) for words in commands] == ["db upgrade", "server"]
    spec = named(read_objects(), "RayCluster")["rewardflow"]["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        words = start_command(group["rayStartParams"], head="groupName" not in group)
        assert parse(ray, ["start", *words]) == "start"
    commands = of_containers("prefect") + [
        [word for word in words if word != "--no-prompt"]
        for words in of_the_guide("prefect")  # an option of all commands
    ]
    understood = [prefect.parse_args(words, print_error=False, exit_on_error=False)[0].__name__ for words in commands]
    assert understood == ["start", "start", "deploy", "run", "run"]
    for wrong, words in slips():
        with pytest.raises(Exception, match=r"(?i)no such option|unknown option"):
            if wrong == "prefect":
                prefect.parse_args(words, print_error=False, exit_on_error=False)
            else:
                parse({"mlflow": mlflow, "ray": ray}[wrong], words)


def slips() -> Iterator[tuple[str, list[str]]]:
    """Yield programs with arguments that they must refuse. They show that the test above can fail."""
    yield "mlflow", ["server", "--alowed-hosts=a"]
    yield "ray", ["start", "--head", "--num-cpu=0"]
    yield "prefect", ["worker", "start", "--pol=a"]


def test_the_script_that_a_container_runs_is_in_the_repository() -> None:
    shell, script, home, _ = container_named(read_objects(), "checkout")["command"]
    assert shell == "bash" and (ROOT / Path(script).relative_to(home)).is_file()
