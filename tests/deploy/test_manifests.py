"""Tests of the manifests: they have no fault, each kind of mistake in them is found, and they agree with the guide."""

import copy
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from faults import SECRET_NAME, faults, secret_references, value_at
from manifests import DEPLOY, ROOT, Object, container_named, kustomization, named, pods, read_objects
from ray_cluster import start_command

from models.base.errors import UserError
from tasks.state.storage import health

GONE = object()
GUIDE = ROOT / "docs" / "deploy.md"
MLFLOW, PREFECT, DATABASE, RAY = (
    "Deployment/mlflow",
    "Deployment/prefect",
    "StatefulSet/database",
    "RayCluster/rewardflow",
)
POD, HEAD, WORKER = "spec.template.spec", "spec.headGroupSpec.template.spec", "spec.workerGroupSpecs.0.template.spec"


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return read_objects()


def test_nothing_is_wrong_with_the_manifests(objects: list[Object]) -> None:
    assert faults(objects) == []


SLIPS = [
    # the schemas of Kubernetes
    (MLFLOW, f"{POD}.containers", GONE, "'containers' is a required property"),
    (MLFLOW, f"{POD}.containers.0.command", "mlflow server", "is not of type 'array'"),
    (MLFLOW, f"{POD}.containers.0.comand", ["x"], "'comand' was unexpected"),
    (PREFECT, "spec.replicas", "1", "is not of type 'integer'"),
    (DATABASE, "spec.serviceName", 5, "is not of type 'string'"),
    ("PersistentVolumeClaim/state", "spec.accessModes", "ReadWriteMany", "is not of type 'array'"),
    ("NetworkPolicy/from-inside", "spec.podSelectors", {}, "'podSelectors' was unexpected"),
    ("ConfigMap/models", "data.RAY_USAGE_STATS_ENABLED", 0, "0 is not of type 'string'"),
    (RAY, f"{HEAD}.initContainers.1.restartPolicies", "Always", "'restartPolicies' was unexpected"),
    (RAY, f"{WORKER}.containers.0.resources.limits.memory", ["96Gi"], "limits.memory"),
    # KubeRay's own fields
    (RAY, "spec.rayVersion", GONE, "spec.rayVersion: Field required"),
    (RAY, "spec.rayVersion", 2.6, "spec.rayVersion: Input should be a valid string"),
    (RAY, "spec.rayVersion", "2.44.0", "tokens need Ray 2.52"),
    (RAY, "spec.enableInTreeAutoScaling", True, "Extra inputs are not permitted"),
    (RAY, "spec.autoscalerOptions.version", "v3", "Input should be 'v1' or 'v2'"),
    (RAY, "spec.headGroupSpec.rayStartParams.num-cpus", 0, "num-cpus: Input should be a valid string"),
    (RAY, "spec.workerGroupSpecs.0.minReplicas", "0", "minReplicas: Input should be a valid integer"),
    (RAY, "spec.workerGroupSpecs.0.minReplicas", 9, "minReplicas <= replicas"),
    (RAY, "spec.workerGroupSpecs", [], "at least 1 item"),
    (RAY, f"{HEAD}.restartPolicy", "Always", "with the autoscaler v2 it is Never"),
    (RAY, f"{HEAD}.containers.0.env", [{"name": "RAY_enable_autoscaler_v2", "value": "1"}], "that the operator sets"),
    (RAY, "metadata.name", "Rewardflow", "metadata.name: String should match pattern"),
    # sizes
    (MLFLOW, f"{POD}.containers.0.resources.requests.memory", "1 GB", "requests.memory '1 GB'"),
    (RAY, f"{HEAD}.volumes.1.emptyDir.sizeLimit", "64Gi", "is larger than the container's memory"),
    (RAY, "spec.headGroupSpec.rayStartParams.object-store-memory", "99999999999", "does not fit /dev/shm"),
    # references
    (MLFLOW, f"{POD}.containers.0.envFrom.0.configMapRef.name", "stores", "ConfigMap stores is not there"),
    (RAY, f"{HEAD}.volumes.0.persistentVolumeClaim.claimName", "home", "PersistentVolumeClaim home is not there"),
    (RAY, f"{WORKER}.containers.0.volumeMounts.1.name", "shm", "volume shm is not there"),
    (PREFECT, f"{POD}.containers.0.readinessProbe.httpGet.port", "web", "port web is not there"),
    (RAY, f"{WORKER}.containers.0.livenessProbe.tcpSocket.port", "raylet", "port raylet is not there"),
    (RAY, f"{HEAD}.initContainers.1.envFrom.0.configMapRef.name", "models", "ConfigMap/clients: nobody reads it"),
    (DATABASE, "spec.serviceName", "postgres", "Service postgres is not there"),
    # selectors and ports
    (MLFLOW, "spec.selector.matchLabels", {"app.kubernetes.io/name": "ml"}, "does not match its own pods"),
    ("Service/prefect", "spec.selector", {"app.kubernetes.io/name": "prefekt"}, "matches 0 kinds of pods"),
    ("Service/mlflow", "spec.ports.0.port", 5001, "port 5001 leads to http"),
    ("Service/mlflow", "spec.ports.0.targetPort", "web", "leads to web"),
    ("NetworkPolicy/database", "spec.podSelector.matchLabels", {"app.kubernetes.io/name": "db"}, "selects no pod"),
    # addresses
    ("ConfigMap/clients", "data.PREFECT_API_URL", "http://prefect-server:4200/api", "no Service prefect-server"),
    ("ConfigMap/clients", "data.MLFLOW_TRACKING_URI", "http://mlflow:8080", "no Service mlflow with port 8080"),
    (MLFLOW, f"{POD}.containers.0.command.5", "--allowed-hosts=localhost:5000", "not among the allowed hosts"),
    # images
    (MLFLOW, f"{POD}.containers.0.image", "rewardflow:0.0.9-cpu", "image rewardflow:0.0.9-cpu, not rewardflow:"),
    (RAY, f"{WORKER}.containers.0.image", "rewardflow:0.2.0-cpu", "-cuda"),
    (DATABASE, f"{POD}.containers.0.image", "postgres:latest", "has no version"),
    (RAY, "spec.rayVersion", "2.59.0", "is not the lock's"),
    # safety: nothing served outside, no secret, no root
    ("Service/mlflow", "spec.type", "LoadBalancer", "is served outside of the cluster"),
    ("Service/prefect", "kind", "Ingres", "Ingres"),
    (RAY, f"{HEAD}.securityContext.runAsUser", 0, "may run as root"),
    (RAY, f"{HEAD}.containers.0.securityContext", {"privileged": True}, "may gain privileges"),
    (DATABASE, f"{POD}.hostNetwork", True, "has hostNetwork"),
    (MLFLOW, f"{POD}.volumes", [{"name": "x", "hostPath": {"path": "/"}}], "of a kind that is not allowed"),
    (MLFLOW, f"{POD}.enableServiceLinks", GONE, "variables named after Services"),
    (DATABASE, f"{POD}.containers.0.env.3", {"name": "POSTGRES_PASSWORD", "value": "x"}, "is written down"),
    (PREFECT, f"{POD}.containers.0.env.1.value", "postgresql://a:b@database:5432/prefect", "holds a password"),
    (PREFECT, f"{POD}.containers.0.livenessProbe", GONE, "has no livenessProbe"),
    (RAY, f"{HEAD}.containers.0.readinessProbe", GONE, "has no readinessProbe"),
    (PREFECT, f"{POD}.containers.0.resources", GONE, "has no resources"),
    ("NetworkPolicy/from-inside", "spec.podSelector", {"matchLabels": {"app.kubernetes.io/name": "mlflow"}}, "no Netw"),
]


def slip_name(slip: str, path: str, value: object) -> str:
    """Return the id of a case. It must be the same in every process that collects the tests."""
    return f"{slip} {path} {'gone' if value is GONE else value}"[:70]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("slip", "path", "value", "says"), SLIPS, ids=[slip_name(*slip[:3]) for slip in SLIPS])
def test_a_slip_is_noticed(objects: list[Object], slip: str, path: str, value: Any, says: str) -> None:
    changed = copy.deepcopy(objects)
    kind, name = slip.split("/")
    holder, step = value_at(named(changed, kind)[name], path)
    if value is GONE:
        del holder[step]
    else:
        holder[step] = value
    complaints = faults(changed)
    assert any(says in fault for fault in complaints), complaints


@pytest.mark.parametrize(
    "stray",
    [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "stringData": {"password": "x"}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "door"}, "spec": {}},
    ],
    ids=lambda stray: stray["kind"],
)
def test_a_secret_or_a_door_among_the_manifests_is_noticed(objects: list[Object], stray: Object) -> None:
    assert any("must not be here" in fault for fault in faults([*objects, stray]))


def test_the_secrets_that_are_read_are_those_that_the_guide_makes_and_the_token_that_kuberay_makes(
    objects: list[Object],
) -> None:
    made: dict[str, set[str]] = {}
    for command in re.findall(r"create secret generic((?:[^\n]*\\\n)*[^\n]*)", GUIDE.read_text()):
        made[command.split()[0]] = set(re.findall(r"--from-literal=(\w+)=", command))
    (cluster,) = named(objects, "RayCluster")
    made[cluster] = {"auth_token"}
    read = secret_references(objects)
    assert {name for name, _ in read} == set(made)
    assert {(name, key) for name, key in read if key} <= {(name, key) for name in made for key in made[name]}
    assert made["store"] == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_every_blank_is_in_the_guides_list_and_is_no_value_that_anybody_takes(objects: list[Object]) -> None:
    texts = {file.name: file.read_text() for file in DEPLOY.iterdir() if file.is_file()}
    blanks = {blank for text in texts.values() for blank in re.findall(r"<[A-Z0-9-]+>", text)}
    listed = set(re.findall(r"^\| `(<[A-Z0-9-]+>)` \|", GUIDE.read_text(), flags=re.MULTILINE))
    assert blanks == listed
    assert not any(re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", blank) for blank in blanks)  # a Kubernetes name
    with pytest.raises(UserError, match="s3://<BUCKET>"):
        health(named(objects, "ConfigMap")["store"]["data"]["DATA_REMOTE"], "http://127.0.0.1:9")


def test_no_file_of_the_folder_is_left_out(objects: list[Object]) -> None:
    listed = kustomization()
    assert set(listed) == {"apiVersion", "kind", "namespace", "resources", "images"}
    others = {"kustomization.yaml", "deployments.yaml", "checkout", "systemd"}
    assert {file.name for file in DEPLOY.iterdir()} == {*listed["resources"], *others}
    assert [image["name"] for image in listed["images"]] == ["rewardflow"]
    assert set(named(objects, "Namespace")) == {listed["namespace"]}
    assert not any("namespace" in content["metadata"] for content in objects)


def test_the_flows_join_the_ray_of_their_own_pod(objects: list[Object]) -> None:
    """The worker shares the sockets, the object store and the processes of the Ray head, and has its token."""
    head = next(pod for pod in pods(objects) if pod.role == "head")
    ray, worker = container_named(objects, "ray-head"), container_named(objects, "prefect-worker")
    shared = {mount["mountPath"]: mount["name"] for mount in ray["volumeMounts"]}
    assert {mount["mountPath"]: mount["name"] for mount in worker["volumeMounts"]} == shared
    assert {"/tmp/ray", "/dev/shm", "/state"} <= set(shared)
    assert head.spec["shareProcessNamespace"] is True
    variables = {variable["name"] for variable in worker["env"]}
    assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} <= variables
    # the container restarts, although the policy of the pod is Never
    assert worker["restartPolicy"] == "Always"
    assert worker in head.lasting and head.spec["containers"] == [ray]


def test_at_rest_there_is_no_gpu_and_every_pod_of_ray_sees_the_state_at_one_path(objects: list[Object]) -> None:
    spec = named(objects, "RayCluster")["rewardflow"]["spec"]
    assert [group["minReplicas"] for group in spec["workerGroupSpecs"]] == [0]
    for name in ("ray-head", "prefect-worker", "ray-worker", "checkout"):
        mounts = {mount["name"]: mount["mountPath"] for mount in container_named(objects, name)["volumeMounts"]}
        assert mounts["state"] == "/state"
    for pod in pods(objects):
        for box in pod.containers:
            assert ("nvidia.com/gpu" in box["resources"]["limits"]) == (box["name"] == "ray-worker")
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


# Variable -> the file that reads it: a path in this project, or `package:file` of an installed package.
READ_BY = {
    "REWARDFLOW_HOME": "flows/runtime/environment.py",
    "DATA_REMOTE": "deploy/checkout",
    "PREFECT_API_URL": "flows/servers/servers.py",
    "PREFECT_HOME": "flows/runtime/environment.py",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "tasks/host/environment.py",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "flows/servers/server_process.py",
    "PREFECT_SERVER_LOGGING_LEVEL": "flows/servers/servers.py",
    "PREFECT_SERVER_UI_API_URL": "flows/servers/servers.py",
    "MLFLOW_TRACKING_URI": "tasks/tracking/store.py",
    "MLFLOW_DISABLE_TELEMETRY": "tasks/host/environment.py",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "tasks/host/environment.py",
    "MLFLOW_BACKEND_STORE_URI": "mlflow:cli/__init__.py",
    "MLFLOW_ARTIFACTS_DESTINATION": "mlflow:cli/__init__.py",
    "MLFLOW_S3_ENDPOINT_URL": "mlflow:environment_variables.py",
    "AWS_ENDPOINT_URL": "tasks/state/storage.py",
    "AWS_ACCESS_KEY_ID": "botocore:credentials.py",
    "AWS_SECRET_ACCESS_KEY": "botocore:credentials.py",
    "AWS_DEFAULT_REGION": "botocore:configprovider.py",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "tasks/host/environment.py",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "tasks/host/environment.py",
    "HF_HOME": "huggingface_hub:constants.py",
    "RAY_USAGE_STATS_ENABLED": "tasks/host/environment.py",
    "RAY_AUTH_TOKEN": "tasks/compute/cluster.py",
    "RAY_AUTH_MODE": "ray:_private/authentication/authentication_token_setup.py",
}
OF_POSTGRES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD", "PGDATA"}  # the password: our pods, too


def test_every_variable_is_one_that_somebody_reads(objects: list[Object]) -> None:
    given = {key for name, content in named(objects, "ConfigMap").items() for key in content["data"] if name != START}
    given |= {variable["name"] for pod in pods(objects) for box in pod.containers for variable in box.get("env", [])}
    settings = {name for name in given if name.startswith(("PREFECT_SERVER_DATABASE_", "PREFECT_WORKER_"))}
    assert given - OF_POSTGRES - settings <= set(READ_BY)
    for name in given & set(READ_BY):
        assert name in text_of(READ_BY[name]), name
    from prefect.settings import Settings

    fields = Settings.model_fields
    assert settings
    for name in settings:
        part, *rest = name.removeprefix("PREFECT_").lower().split("_", 1)
        known = fields[part].annotation
        while rest and rest[0] not in known.model_fields:
            step = next(field for field in known.model_fields if rest[0].startswith(f"{field}_"))
            known, rest = known.model_fields[step].annotation, [rest[0].removeprefix(f"{step}_")]
        assert rest, name


START = "database-start"


def text_of(place: str) -> str:
    """Return the text of a file of this project, or of `package:file` of an installed package."""
    package, _, file = place.rpartition(":")
    if not package:
        return (ROOT / file).read_text()
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    return (Path(spec.submodule_search_locations[0]) / file).read_text()


def test_no_name_of_a_secret_is_a_setting(objects: list[Object]) -> None:
    for content in named(objects, "ConfigMap").values():
        assert not [key for key in content["data"] if SECRET_NAME.search(key)]


def test_rays_own_words_for_starting_are_what_the_operator_makes_of_the_manifest(objects: list[Object]) -> None:
    spec = named(objects, "RayCluster")["rewardflow"]["spec"]
    said = start_command(spec["headGroupSpec"]["rayStartParams"], head=True)
    assert {"--head", "--block", "--no-monitor", "--num-cpus=0", "--include-dashboard=false"} <= set(said)
    assert "--node-manager-port=6380" in start_command(spec["workerGroupSpecs"][0]["rayStartParams"], head=False)
