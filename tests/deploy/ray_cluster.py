"""The fields of KubeRay's RayCluster (ray.io/v1) that deploy/ray.yaml uses, with the types of its CRD.

Further checks repeat the operator's validation of a spec. A field that is not listed here is refused: look it up,
then add it. Pod templates are not checked here but by the schemas of Kubernetes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31, strict=True)]
TOKENS_SINCE = (2, 52)
"""First version of Ray with token authentication."""
OPERATORS_OWN = ("RAY_enable_autoscaler_v2", "RAY_CLUSTER_NAME", "RAY_CLOUD_INSTANCE_ID", "RAY_NODE_TYPE_NAME")
"""Variables of Ray's containers that the operator sets. If a manifest sets them, it is refused or overridden."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AuthOptions(_Part):
    """`spec.authOptions`."""

    mode: Literal["disabled", "token"]


class AutoscalerOptions(_Part):
    """`spec.autoscalerOptions`."""

    version: Literal["v1", "v2"]
    idleTimeoutSeconds: Annotated[Int32, Field(ge=0)]
    resources: dict[str, dict[str, str]]
    securityContext: dict[str, Any]


class HeadGroup(_Part):
    """`spec.headGroupSpec`."""

    rayStartParams: dict[str, str]
    template: dict[str, Any]


class WorkerGroup(HeadGroup):
    """An entry of `spec.workerGroupSpecs`."""

    groupName: str
    replicas: Int32
    minReplicas: Int32
    maxReplicas: Int32

    @model_validator(mode="after")
    def _bounds(self) -> WorkerGroup:
        if not 0 <= self.minReplicas <= self.replicas <= self.maxReplicas:
            raise ValueError("0 <= minReplicas <= replicas <= maxReplicas does not hold")
        return self


class Spec(_Part):
    """`spec`."""

    rayVersion: str
    authOptions: AuthOptions
    enableInTreeAutoscaling: bool
    autoscalerOptions: AutoscalerOptions
    headGroupSpec: HeadGroup
    workerGroupSpecs: Annotated[list[WorkerGroup], Field(min_length=1)]

    @model_validator(mode="after")
    def _as_the_operator(self) -> Spec:
        if self.authOptions.mode == "token" and tuple(map(int, self.rayVersion.split(".")[:2])) < TOKENS_SINCE:
            raise ValueError(f"rayVersion: tokens need Ray 2.52, not {self.rayVersion}")
        groups: list[HeadGroup] = [self.headGroupSpec, *self.workerGroupSpecs]
        for group in groups:
            pod = group.template["spec"]
            if self.autoscalerOptions.version == "v2" and pod.get("restartPolicy", "Never") != "Never":
                raise ValueError("restartPolicy: with the autoscaler v2 it is Never")
            if set(OPERATORS_OWN) & {variable["name"] for variable in pod["containers"][0].get("env", [])}:
                raise ValueError("env: a variable that the operator sets")
        names = [group.groupName for group in self.workerGroupSpecs]
        if len(set(names)) < len(names):
            raise ValueError("groupName: two groups have one name")
        return self


class Metadata(_Part):
    """`metadata`. The operator derives the names of Services from the name."""

    name: Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=53)]


class RayCluster(_Part):
    """The whole object."""

    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: Spec


def faults_of(content: dict[str, Any]) -> list[str]:
    """Return what is wrong with a RayCluster, one line per fault."""
    try:
        RayCluster.model_validate(content)
    except ValidationError as error:
        return [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()]
    return []


def start_command(parameters: dict[str, str], head: bool) -> list[str]:
    """Return the arguments that the operator gives to `ray start`: its defaults and `parameters`, in its notation."""
    own = {"metrics-export-port": "8080", "dashboard-agent-listen-port": "52365", "block": "true"}
    own |= {"dashboard-host": "0.0.0.0", "no-monitor": "true"} if head else {"address": "head.namespace.svc:6379"}
    said = ["--head"] if head else []
    for name, value in sorted((own | parameters).items()):
        switch = value in ("true", "false") and name not in ("log-color", "include-dashboard", "include-log-monitor")
        if not switch:
            said.append(f"--{name}={value}")
        elif value == "true":
            said.append(f"--{name}")
    return said
