"""Tests of the repository: imports between the layers, the built package, the lock files, forbidden text in files."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from running import ROOT

SCRIPTS = Path(sys.executable).parent


def tracked() -> list[Path]:
    """Return tracked files and new files that git does not ignore, relative to the checkout, without deleted ones."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


PACKAGES = ("rewardflow", "flows", "tasks", "models")
BUILT_FROM = (
    *("pyproject.toml", "README.md", "LICENSE", "params.yaml", "dvc.yaml", "prefect.yaml"),
    *("recipes", "data", "deploy"),
)
"""Other files and folders that the wheel is built from."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that the package is built from, and return the folder."""
    folder = tmp_path_factory.mktemp("copy")
    for path in tracked():
        if path.parts[0] in (*PACKAGES, *BUILT_FROM):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes((ROOT / path).read_bytes())
    return folder


def test_the_folder_mlflow_holds_no_python() -> None:
    assert [path for path in tracked() if path.parts[0] == "mlflow" and path.suffix in (".py", ".pyi", ".so")] == []


@pytest.mark.rotating(of=6)
def test_the_wheel_has_all_packages_the_project_files_and_nothing_else(copy: Path, tmp_path: Path) -> None:
    for stray in ("mlflow", "data", "tests"):  # even if these folders are packages
        (copy / stray).mkdir(exist_ok=True)
        (copy / stray / "__init__.py").touch()
    build = f"from setuptools import build_meta; print(build_meta.build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name for name in held if name.endswith(".py")} == {
        str(path) for path in tracked() if path.parts[0] in PACKAGES and path.suffix == ".py"
    }
    assert {Path(name).parts[0] for name in held} == set(PACKAGES)
    copies = {name.removeprefix("rewardflow/project/") for name in held if name.startswith("rewardflow/project/")}
    folders = ("recipes/", "data/expectations/", "deploy/systemd/")
    assert copies == {str(path) for path in tracked() if str(path).startswith(folders) or str(path) in BUILT_FROM[3:6]}


def test_the_walls_between_the_layers_stand() -> None:
    walls = lint_imports(ROOT)
    assert walls.returncode == 0, walls.stdout


def test_every_broken_wall_is_noticed(copy: Path) -> None:
    """Each broken import has its own file. All are checked in one call, because the linter takes seconds."""
    broken = {
        "models.stray_a -> tasks": "import tasks",
        "tasks.stray_a -> flows.runtime.environment": "from flows.runtime import environment",
        "models.stray_b -> prefect": "import prefect",
        "tasks.stray_b -> mlflow": "from mlflow import MlflowClient",
        "flows.stray_a -> boto3": "import boto3",
        "tasks.stray_c -> dvc": "import dvc.api",
        "flows.stray_b -> great_expectations": "import great_expectations as gx",
    }
    files = {name: copy / f"{name.split(' ')[0].replace('.', '/')}.py" for name in broken}
    for name, line in broken.items():
        files[name].write_text(f"{line}\n")
    try:
        looked = lint_imports(copy)
    finally:
        for file in files.values():
            file.unlink()
    assert looked.returncode == 1
    assert [name for name in broken if f"{name} (l.1)" not in looked.stdout] == [], looked.stdout


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / "lint-imports"), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_file_is_two_rooms() -> None:
    lines = {str(path): len((ROOT / path).read_text().splitlines()) for path in tracked() if path.suffix == ".py"}
    assert {path: count for path, count in lines.items() if count > 400} == {}


def test_what_tests_share_has_a_name_of_its_own() -> None:
    """pytest puts every folder of tests on the path, so the second of two files with one name cannot be imported."""
    names = [path.name for path in tracked() if path.parts[0] == "tests" and path.suffix == ".py"]
    several = {name for name in names if names.count(name) > 1}
    assert several <= {"conftest.py", "__init__.py"}


def test_the_project_names_no_registry_and_no_folder_of_one_machine() -> None:
    # The names are split, so that this file does not contain them.
    hosts = ["py" + "pi.org", "python" + "hosted", "download." + "pytorch", "conda." + "anaconda"]
    pattern = re.compile("|".join([*map(re.escape, hosts), r"(?<![\w.~/-])/(?:work|root|home/\w+)/"]))
    traces = []
    for path in tracked():
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        traces += [f"{path}: {match[0]}" for match in pattern.finditer(text)]
    assert traces == []


def test_the_locks_pin_every_package_once_and_agree_on_what_both_have_of_our_own() -> None:
    cpu, cuda = (dict(pins(name)) for name in ("cpu.lock", "cuda.lock"))
    assert len(cpu) == len(pins("cpu.lock")) and len(cuda) == len(pins("cuda.lock"))
    ours = re.findall(r'^    "([A-Za-z0-9-]+)[><=]', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert len(ours) > 20
    assert [name for name in map(str.lower, ours) if cpu[name] != cuda[name]] == []
    assert not {"torchvision", "torchaudio", "torchcodec", "triton"} & set(cpu)


def pins(name: str) -> list[tuple[str, str]]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    return [(package, version) for package, version in (line.split("==") for line in lines)]


IMPORT_ALL = r"""
import importlib, re, sys, warnings
from importlib import metadata
warnings.simplefilter("ignore")
normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
locked = set(sys.argv[1:])
failed = []
for module, distributions in sorted(metadata.packages_distributions().items()):
    if module.isidentifier() and not module.startswith("_") and locked & set(map(normal, distributions)):
        try:
            importlib.import_module(module)
        except BaseException as error:
            failed.append(f"{module}: {error!r}")
from transformers import AutoModelForCausalLM
from vllm import LLM
import dvc.api, dvc_s3, prefect.flows, peft, mlflow.transformers
print(failed)
"""


@pytest.mark.thorough
def test_everything_in_the_lock_imports_in_one_process(tmp_path: Path) -> None:
    names = [name for name, _ in pins("cpu.lock")]
    asked = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.splitlines()[-1] == "[]"
