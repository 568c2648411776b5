"""The objects that `kubectl apply -k deploy` makes, as they stand in the files, and ways to look into them."""

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
    """The list of files, and the images' names."""
    content: Object = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    return content


def read_objects() -> list[Object]:
    """Every object of every file that the kustomization names."""
    files = [DEPLOY / name for name in kustomization()["resources"]]
    return [content for file in files for content in yaml.safe_load_all(file.read_text()) if content]


def title(content: Object) -> str:
    """`Deployment/mlflow`."""
    return f"{content.get('kind')}/{content.get('metadata', {}).get('name')}"


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    """Name -> object of one kind."""
    return {content["metadata"]["name"]: content for content in objects if content.get("kind") == kind}


@dataclass(frozen=True)
class Pod:
    """A template of pods, and whose."""

    owner: Object
    role: str
    """Of a Ray cluster's templates `head` or the group's name; "" otherwise."""
    template: Object

    @property
    def name(self) -> str:
        """`RayCluster/rewardflow head`."""
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
        """Init containers first, as they start."""
        return [*self.spec.get("initContainers", []), *self.spec.get("containers", [])]

    @property
    def lasting(self) -> list[Object]:
        """Containers that run as long as the pod does."""
        sidecars = [box for box in self.spec.get("initContainers", []) if box.get("restartPolicy") == "Always"]
        return [*sidecars, *self.spec.get("containers", [])]


def pods(objects: list[Object]) -> list[Pod]:
    """Every template of pods."""
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
    """The container of that name."""
    (complaints,) = [box for pod in pods(objects) for box in pod.containers if box["name"] == name]
    return complaints
