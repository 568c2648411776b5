"""The objects that `kubectl apply -k deploy` makes, read from the files, and functions that search them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

Object = dict[str, Any]


def kustomization() -> Object:
    """Return the content of kustomization.yaml: the list of files and the names of the images."""
    content: Object = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    return content


def read_objects() -> list[Object]:
    """Return every object of every file that the kustomization names."""
    files = [DEPLOY / name for name in kustomization()["resources"]]
    return [content for file in files for content in yaml.safe_load_all(file.read_text()) if content]


def title(content: Object) -> str:
    """Return kind and name, such as `Deployment/mlflow`."""
    return f"{content.get('kind')}/{content.get('metadata', {}).get('name')}"


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of one kind by their names."""
    return {content["metadata"]["name"]: content for content in objects if content.get("kind") == kind}


@dataclass(frozen=True)
class Pod:
    """A template of pods, and the object that owns it."""

    owner: Object
    role: str
    """In a Ray cluster, `head` or the name of the worker group; "" otherwise."""
    template: Object

    @property
    def name(self) -> str:
        """Title of the owner and role, such as `RayCluster/rewardflow head`."""
        return f"{title(self.owner)} {self.role}".strip()

    @property
    def spec(self) -> Object:
        """The pod's spec."""
        spec: Object = self.template["spec"]
        return spec

    @property
    def labels(self) -> dict[str, str]:
        """The pod's labels."""
        labels: dict[str, str] = self.template.get("metadata", {}).get("labels", {})
        return labels

    @property
    def containers(self) -> list[Object]:
        """All containers in the order in which they start: init containers first."""
        return [*self.spec.get("initContainers", []), *self.spec.get("containers", [])]

    @property
    def lasting(self) -> list[Object]:
        """Containers that run as long as the pod does."""
        sidecars = [box for box in self.spec.get("initContainers", []) if box.get("restartPolicy") == "Always"]
        return [*sidecars, *self.spec.get("containers", [])]


def pods(objects: list[Object]) -> list[Pod]:
    """Return every template of pods."""
    return [pod for content in objects for pod in _of(content)]


def _of(content: Object) -> Iterator[Pod]:
    spec = content.get("spec", {})
    if content.get("kind") in ("Deployment", "StatefulSet"):
        yield Pod(content, "", spec["template"])
    elif content.get("kind") == "RayCluster":
        yield Pod(content, "head", spec["headGroupSpec"]["template"])
        for group in spec.get("workerGroupSpecs", []):
            yield Pod(content, group.get("groupName", ""), group["template"])


def container_named(objects: list[Object], name: str) -> Object:
    """Return the only container with this name."""
    (complaints,) = [box for pod in pods(objects) for box in pod.containers if box["name"] == name]
    return complaints
