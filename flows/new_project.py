"""A new project folder outside a clone: recipe, reward, stages of the built-in data, schedule, git and DVC."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from string import Template

from models.base.errors import UserError
from models.base.package_files import PROJECT, TEMPLATE
from tasks.data.project_stages import CODE_FILE, code_digest_text, project_stages
from tasks.host.code_version import ask_git

DVC_CONFIG = """[core]
    analytics = false
    check_update = false
    remote = local
['remote "local"']
    url = ../.rewardflow/dvc-remote
"""
"""DVC's settings of a project: without analytics, with a remote in the state folder until the user names another."""


def create_project(folder: Path) -> list[str]:
    """Create the files of a project in `folder`, and its git and DVC repositories if there are none.

    Returns:
        The new files, relative to `folder`, in order.

    Raises:
        UserError: a file of the project exists already, the folder cannot be written, or git is missing or fails.
            Nothing is written then.
    """
    files = project_files(folder.absolute().name)
    present = [name for name in files if os.path.lexists(folder / name)]
    if present:
        raise UserError(f"{folder / present[0]}: exists already; a project is created in a folder without such files")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; name a folder")
    existed = folder.is_dir()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            made = Path(temporary) / folder.name
            for name, text in files.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).write_text(text, encoding="utf-8")
            _create_repositories(made, within=folder if existed else folder.parent)
            if not existed:
                made.rename(folder)
            else:
                for entry in sorted(made.iterdir()):
                    if entry.is_dir():
                        shutil.copytree(entry, folder / entry.name, dirs_exist_ok=True)
                    else:
                        entry.rename(folder / entry.name)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error})") from None
    return list(files)


def project_files(name: str) -> dict[str, str]:
    """Return path -> text of the files of a project.

    Args:
        name: the project's name, for its README.
    """
    files = {
        file.relative_to(TEMPLATE).as_posix(): file.read_text(encoding="utf-8")
        for file in sorted(TEMPLATE.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    files[".gitignore"] = files.pop("gitignore")
    files["README.md"] = Template(files["README.md"]).substitute(name=name, version=version("rewardflow"))
    deployments = (PROJECT / "prefect.yaml").read_text(encoding="utf-8")
    deployments = re.sub(r"entrypoint: flows/\w+\.py:", "entrypoint: deployed.py:", deployments)
    files["prefect.yaml"] = deployments.replace("recipe: arithmetic", "recipe: first")
    files["params.yaml"] = (PROJECT / "params.yaml").read_text(encoding="utf-8")
    files["dvc.yaml"] = project_stages()
    files[CODE_FILE] = code_digest_text()
    return files


def _create_repositories(made: Path, within: Path) -> None:
    """Create a git repository, unless `within` is in one, and a DVC repository."""
    _, outside = ask_git(within, "rev-parse", "--show-toplevel")
    if outside and shutil.which("git") is None:
        raise UserError("git is not installed; a project is a git repository")
    if outside:
        _run(["git", "init", "--quiet"], made)
    dvc = [sys.executable, "-m", "dvc", "init", "--quiet"]
    _run(dvc if outside else [*dvc, "--subdir"], made)
    (made / ".dvc" / "config").write_text(DVC_CONFIG, encoding="utf-8")
    shutil.rmtree(made / ".dvc" / "tmp", ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    finished = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "DVC_NO_ANALYTICS": "1"}
    )
    if finished.returncode != 0:
        lines = (finished.stderr or finished.stdout).strip().splitlines() or [f"exit status {finished.returncode}"]
        raise UserError(f"{' '.join(command[-3:])}: {lines[-1]}")
