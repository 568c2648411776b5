"""Checks of the manifests beyond their syntax. Each check returns a list of complaints."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import kubernetes_validate
from manifests import ROOT, Object, Pod, named, pods, title
from ray_cluster import faults_of

KUBERNETES = ("1.29", "1.37")
"""The oldest release that docs/deploy.md promises, and the newest one whose schemas are packaged."""
QUANTITY = re.compile(r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
ADDRESS = re.compile(r"(?:://|@)([a-z][a-z0-9-]*):(\d+)")
"""Pattern of a host and a port. The host is a plain name: a Service of the namespace."""
SECRET_NAME = re.compile(r"PASSWORD|TOKEN|SECRET|ACCESS_KEY")

Check = Callable[[list[Object]], list[str]]


def version(package: str) -> str:
    """Return the version of a package in cpu.lock."""
    (line,) = re.findall(rf"^{package}==(.+)$", (ROOT / "cpu.lock").read_text(), flags=re.MULTILINE)
    return str(line)


def own_version() -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def schema(objects: list[Object]) -> list[str]:
    """Check fields and types by the schemas of Kubernetes, with unknown fields refused, and by those of KubeRay."""
    complaints = []
    for content in objects:
        if content.get("apiVersion") == "ray.io/v1":
            complaints += [f"{title(content)}: {fault}" for fault in faults_of(content)]
            continue
        complaints += _against_schema(title(content), content)
    for pod in pods(objects):
        if pod.role:
            template = {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": "pod"},
                "template": pod.template,
            }
            complaints += _against_schema(pod.name, template)
    return complaints


def _against_schema(name: str, content: Object) -> list[str]:
    return [f"{name}: {fault}" for fault in _schema_faults(json.dumps(content))]


@cache
def _schema_faults(content: str) -> list[str]:
    """Return the faults of an object. It is given as JSON text, so that the result can be cached."""
    for release in KUBERNETES:
        try:
            kubernetes_validate.validate(json.loads(content), release, strict=True)
        except kubernetes_validate.ValidationError as error:
            return [f"{'.'.join(map(str, error.path))}: {error.message} (Kubernetes {release})"]
        except kubernetes_validate.SchemaNotFoundError as error:
            return [str(error)]
    return []


def quantities(objects: list[Object]) -> list[str]:
    """Check that CPU and memory are quantities, and that memory volumes and Ray's object store fit their limits."""
    complaints = []
    for pod in pods(objects):
        memory_folders = {
            volume["name"]: volume["emptyDir"].get("sizeLimit", "")
            for volume in pod.spec.get("volumes", [])
            if volume.get("emptyDir", {}).get("medium") == "Memory"
        }
        for name, size in memory_folders.items():
            if not QUANTITY.match(size):
                complaints.append(f"{pod.name}: {name}: sizeLimit {size!r}")
        for box in pod.containers:
            resources = box.get("resources", {})
            amounts = [(part, key, str(value)) for part in resources for key, value in resources[part].items()]
            complaints += [
                f"{pod.name}: {box['name']}: {part}.{key} {value!r}"
                for part, key, value in amounts
                if not QUANTITY.match(value)
            ]
            limit = str(resources.get("limits", {}).get("memory", "0"))
            mounted = {mount["name"] for mount in box.get("volumeMounts", [])}
            complaints += [
                f"{pod.name}: {box['name']}: {name} of {size} is larger than the container's memory of {limit}"
                for name, size in memory_folders.items()
                if name in mounted and _bytes(size) > _bytes(limit)
            ]
    for content in named(objects, "RayCluster").values():
        head = content["spec"]["headGroupSpec"]
        store = int(head["rayStartParams"].get("object-store-memory", 0))
        (folder,) = [v["emptyDir"] for v in head["template"]["spec"]["volumes"] if v["name"] == "shared-memory"]
        if not 0 < store <= _bytes(folder.get("sizeLimit", "0")):
            complaints.append(f"{title(content)}: object-store-memory {store} does not fit /dev/shm")
    return complaints


def _bytes(quantity: str) -> float:
    digits = re.match(r"[0-9.]+", quantity)
    unit = quantity.lstrip("0123456789.")
    return float(digits[0]) * UNITS.get(unit, 1) if digits else 0.0


def references(objects: list[Object]) -> list[str]:
    """Check that every ConfigMap, claim, volume and port that is named exists, and that every ConfigMap is read."""
    maps, claims = named(objects, "ConfigMap"), named(objects, "PersistentVolumeClaim")
    complaints, read = [], set()
    for pod in pods(objects):
        own = {claim["metadata"]["name"] for claim in pod.owner["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"] for volume in pod.spec.get("volumes", [])} | own
        for kind, name, key in _named_by(pod):
            if kind == "ConfigMap":
                read.add(name)
                if name not in maps or (key and key not in maps[name]["data"]):
                    complaints.append(f"{pod.name}: ConfigMap {name} {key} is not there".replace("  ", " "))
            elif kind == "PersistentVolumeClaim" and name not in claims:
                complaints.append(f"{pod.name}: PersistentVolumeClaim {name} is not there")
        for box in pod.containers:
            complaints += [
                f"{pod.name}: {box['name']}: volume {mount['name']} is not there"
                for mount in box.get("volumeMounts", [])
                if mount["name"] not in volumes
            ]
            ports = {port["name"] for port in box.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = box.get(probe, {})
                port = asked.get("httpGet", asked.get("tcpSocket", {})).get("port")
                if port is not None and port not in ports:
                    complaints.append(f"{pod.name}: {box['name']}: {probe}: port {port} is not there")
    complaints += [f"ConfigMap/{name}: nobody reads it" for name in maps if name not in read]
    return complaints


def secret_references(objects: list[Object]) -> set[tuple[str, str]]:
    """Return name and key of every Secret that a pod reads; the key is "" if the pod reads all keys."""
    return {(name, key) for pod in pods(objects) for kind, name, key in _named_by(pod) if kind == "Secret"}


def _named_by(pod: Pod) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and key of each ConfigMap, Secret and claim that a pod reads."""
    for volume in pod.spec.get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], ""
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"], ""
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], ""
    for box in pod.containers:
        for source in box.get("envFrom", []):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if field in source:
                    yield kind, source[field]["name"], ""
        for variable in box.get("env", []):
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if field in variable.get("valueFrom", {}):
                    reference = variable["valueFrom"][field]
                    yield kind, reference["name"], reference["key"]


def selectors(objects: list[Object]) -> list[str]:
    """Check that workloads select their pods, Services one kind of pods and its ports, policies at least one pod."""
    every = pods(objects)
    complaints = []
    for content in objects:
        spec = content.get("spec", {})
        if content.get("kind") in ("Deployment", "StatefulSet"):
            (own,) = [pod for pod in every if pod.owner is content]
            if not _selects(spec["selector"], own.labels):
                complaints.append(f"{title(content)}: the selector does not match its own pods")
            service = spec.get("serviceName")
            if service is not None and service not in named(objects, "Service"):
                complaints.append(f"{title(content)}: Service {service} is not there")
        elif content.get("kind") == "Service":
            meant = [pod for pod in every if _selects({"matchLabels": spec.get("selector", {})}, pod.labels)]
            if len(meant) != 1:
                complaints.append(f"{title(content)}: the selector matches {len(meant)} kinds of pods")
                continue
            ports = {port["name"]: port["containerPort"] for box in meant[0].lasting for port in box.get("ports", [])}
            for port in spec["ports"]:
                if ports.get(port["targetPort"]) != port["port"]:
                    complaints.append(f"{title(content)}: port {port['port']} leads to {port['targetPort']}: {ports}")
        elif content.get("kind") == "NetworkPolicy":
            meant_by = [spec["podSelector"]]
            meant_by += [peer["podSelector"] for rule in spec.get("ingress", []) for peer in rule.get("from", [])]
            for selector in meant_by:
                if not any(_selects(selector, pod.labels) for pod in every):
                    complaints.append(f"{title(content)}: {selector} selects no pod")
    return complaints


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions", []):
        inside = labels.get(rule["key"]) in rule["values"]
        if {"In": inside, "NotIn": not inside}[rule["operator"]] is False:
            return False
    return True


def addresses(objects: list[Object]) -> list[str]:
    """Check that each plain host of an address is a Service with its port, and that MLflow allows the clients' host."""
    services = named(objects, "Service")
    complaints = []
    for where, text in _texts(objects):
        for host, port in ADDRESS.findall(text):
            if host == "localhost":
                continue
            ports = [box["port"] for box in services.get(host, {}).get("spec", {}).get("ports", [])]
            if int(port) not in ports:
                complaints.append(f"{where}: no Service {host} with port {port}")
    tracking = named(objects, "ConfigMap")["clients"]["data"]["MLFLOW_TRACKING_URI"].removeprefix("http://")
    for where, text in _texts(objects):
        if text.startswith("--allowed-hosts=") and tracking not in text.removeprefix("--allowed-hosts=").split(","):
            complaints.append(f"{where}: {tracking} is not among the allowed hosts")
    return complaints


def _texts(objects: list[Object]) -> Iterator[tuple[str, str]]:
    """Yield place and content of each text of a process: values of settings and variables, words of commands."""
    for name, content in named(objects, "ConfigMap").items():
        yield from ((f"ConfigMap/{name}: {key}", str(value)) for key, value in content["data"].items())
    for pod in pods(objects):
        for box in pod.containers:
            where = f"{pod.name}: {box['name']}"
            yield from ((where, str(variable["value"])) for variable in box.get("env", []) if "value" in variable)
            yield from ((where, word) for word in box.get("command", []) + box.get("args", []))


def images(objects: list[Object]) -> list[str]:
    """Check that our images have this version (CUDA for a GPU), others have a version, and Ray has that of the lock."""
    complaints = []
    for pod in pods(objects):
        for box in pod.containers:
            gpu = "nvidia.com/gpu" in box.get("resources", {}).get("limits", {})
            expected = f"rewardflow:{own_version()}-{'cuda' if gpu else 'cpu'}"
            name, _, tag = box["image"].rpartition(":")
            if name == "rewardflow" or not name:
                if box["image"] != expected:
                    complaints.append(f"{pod.name}: {box['name']}: image {box['image']}, not {expected}")
            elif tag == "latest" or not re.match(r"\d", tag):
                complaints.append(f"{pod.name}: {box['name']}: image {box['image']} has no version")
    for content in named(objects, "RayCluster").values():
        if content["spec"].get("rayVersion") != version("ray"):
            complaints.append(f"{title(content)}: rayVersion is not the lock's {version('ray')}")
    return complaints


def safety(objects: list[Object]) -> list[str]:
    """Check that nothing is served outside, no secret is written down, no process can be root, and probes exist."""
    complaints = []
    for content in objects:
        if content["kind"] in ("Ingress", "Secret", "ClusterRole", "ClusterRoleBinding"):
            complaints.append(f"{title(content)}: must not be here")
        if content["kind"] == "Service" and content["spec"].get("type", "ClusterIP") != "ClusterIP":
            complaints.append(f"{title(content)}: is served outside of the cluster")
    policies = list(named(objects, "NetworkPolicy").values())
    for pod in pods(objects):
        covered = [box for box in policies if _selects(box["spec"]["podSelector"], pod.labels)]
        if not any("Ingress" in box["spec"]["policyTypes"] for box in covered):
            complaints.append(f"{pod.name}: no NetworkPolicy selects it")
        complaints += [f"{pod.name}: {fault}" for fault in _pod_safety(pod.spec)]
        for box in pod.containers:
            complaints += [f"{pod.name}: {box['name']}: {fault}" for fault in _container_safety(box)]
        for box in pod.lasting:
            complaints += [f"{pod.name}: {box['name']}: {fault}" for fault in _probe_faults(box)]
    return complaints


def _pod_safety(spec: Object) -> Iterator[str]:
    context = spec.get("securityContext", {})
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "has no seccomp profile"
    if spec.get("enableServiceLinks") is not False:
        yield "is given variables named after Services"
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"has {field}"
    for volume in spec.get("volumes", []):
        if set(volume) - {"name", "configMap", "emptyDir", "persistentVolumeClaim"}:
            yield f"volume {volume['name']} is of a kind that is not allowed"


def _container_safety(box: Object) -> Iterator[str]:
    context = box.get("securityContext", {})
    if context != {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}:
        yield "may gain privileges"
    if any("hostPort" in port for port in box.get("ports", [])):
        yield "has a hostPort"
    resources = box.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})) or "memory" not in resources.get("limits", {}):
        yield "has no resources"
    for variable in box.get("env", []):
        value = str(variable.get("value", ""))
        if value and SECRET_NAME.search(variable["name"]):
            yield f"{variable['name']} is written down"
        if re.search(r"://[^/@]*:[^$@/][^@/]*@", value):
            yield f"{variable['name']} holds a password"


def _probe_faults(box: Object) -> Iterator[str]:
    if "livenessProbe" not in box:
        yield "has no livenessProbe"
    if "readinessProbe" not in box and box.get("restartPolicy") != "Always":  # the worker serves no requests
        yield "has no readinessProbe"


CHECKS: dict[str, Check] = {
    check.__name__: check for check in (schema, quantities, references, selectors, addresses, images, safety)
}


def faults(objects: list[Object]) -> list[str]:
    """Return all complaints. If the schemas are violated, the other checks do not run."""
    complaints = schema(objects)
    return complaints or [fault for check in CHECKS.values() for fault in check(objects)]


def value_at(content: Any, path: str) -> tuple[Any, Any]:
    """Return the container at the end of a dotted path, and the last step: a key (`~` for a dot) or a list's index."""
    *way, last = [int(step) if step.isdigit() else step.replace("~", ".") for step in path.split(".")]
    for step in way:
        content = content[step]
    return content, last
