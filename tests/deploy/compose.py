"""The fields of the Compose Specification that mlflow/compose.yaml uses, with their types.

A field that is not listed here is refused: look it up in the specification, then add it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import yaml
from manifests import ROOT
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

FOLDER = ROOT / "mlflow"
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]+$")]
Duration = Annotated[str, StringConstraints(pattern=r"^(\d+(us|ms|s|m|h))+$")]
Command = str | list[str]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Build(_Part):
    """`build` in its long form."""

    context: str = "."
    args: dict[str, str | int | float | bool | None] = {}
    dockerfile_inline: str = ""


class Healthcheck(_Part):
    """`healthcheck`."""

    test: Annotated[list[str], Field(min_length=2)]
    interval: Duration = "30s"
    timeout: Duration = "30s"
    retries: int = 3


class Dependency(_Part):
    """An entry of `depends_on` in its long form."""

    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]
    required: bool = True


class Service(_Part):
    """An entry of `services`."""

    image: str
    build: Build | None = None
    entrypoint: Command = []
    command: Command = []
    environment: dict[str, str | int | float | None] = {}
    volumes: list[str] = []
    ports: list[str] = []
    healthcheck: Healthcheck | None = None
    depends_on: dict[Name, Dependency] = {}
    stop_grace_period: Duration = "10s"
    restart: Literal["no", "always", "on-failure", "unless-stopped"] = "no"


class Compose(_Part):
    """The whole file."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    services: dict[Name, Service]
    volumes: dict[Name, None]


def read() -> dict[str, Any]:
    """Return the content of mlflow/compose.yaml."""
    content: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return content


def faults_of(content: dict[str, Any]) -> list[str]:
    """Return what is wrong: fields and their types, tags, undefined names, ports on all interfaces, exposed secrets."""
    try:
        compose = Compose.model_validate(content)
    except ValidationError as error:
        return [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return [f"{name}: {fault}" for name, service in compose.services.items() for fault in _faults(service, compose)]


def _faults(service: Service, compose: Compose) -> list[str]:
    faults = []
    if not re.search(r":\d+\.\d+(\.\d+)?(-\w+)?$", service.image):
        faults.append(f"{service.image} is no exact tag")
    for volume in service.volumes:
        source = volume.split(":")[0]
        if not ((FOLDER / source).is_file() if source.startswith(".") else source in compose.volumes):
            faults.append(f"{source} is not there")
    faults += [f"port {port} is not on the loopback interface" for port in service.ports if port[:10] != "127.0.0.1:"]
    for other, dependency in service.depends_on.items():
        if other not in compose.services:
            faults.append(f"depends on {other}, which is not there")
        elif dependency.condition == "service_healthy" and compose.services[other].healthcheck is None:
            faults.append(f"waits until {other} is well, which nobody asks it")
    for variable, value in service.environment.items():
        for host in re.findall(r"(?:://|@)([a-z][a-z0-9-]*):\d+", str(value)):
            if host not in compose.services:
                faults.append(f"{variable} names {host}, which is not there")
        if re.search(r"PASSWORD|SECRET|ACCESS_KEY|AUTH_KEY", variable) and not str(value).strip('"').startswith("${"):
            faults.append(f"{variable} stands in the file")
    words = " ".join([str(service.command), str(service.entrypoint)])
    faults += [f"{secret} is in a command line" for secret in re.findall(r"\$\{?(\w*(?:PASSWORD|KEY)\w*)", words)]
    return faults
