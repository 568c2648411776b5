"""A real git and DVC repository with code and few rows, and a user's files, shared by tests of data versions."""

import json
import shutil
import subprocess
from pathlib import Path

import yaml

from models.datasets.settings import DataSettings

ROOT = Path(__file__).resolve().parents[2]
PROJECT_FILES = (
    ".dvc/.gitignore",
    ".dvc/config",
    ".dvcignore",
    ".gitignore",
    "data/.gitignore",
    "dvc.yaml",
    "params.yaml",
)


def git(root, *arguments):
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    result = subprocess.run(["git", "-C", root, *identity, *arguments], check=True, capture_output=True, text=True)
    return result.stdout.strip()


def make_repository(root):
    """Make a repository with the project's own DVC files and code, and a small data set `arithmetic`."""
    for name in PROJECT_FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "models").mkdir()
    shutil.copy(ROOT / "models/__init__.py", root / "models/__init__.py")
    for package in ("base", "datasets"):
        source = ROOT / "models" / package
        shutil.copytree(source, root / "models" / package, ignore=shutil.ignore_patterns("__pycache__"))
    set_params(
        root,
        problems={"train": [20, 40], "validation": [5, 5], "gate": [5, 5, 5]},
        demonstrations={"train": 50, "validation": 10},
        preferences={"train": 20, "validation": 5},
    )
    git(root, "init", "--quiet")
    commit(root)
    return root


def set_params(root, **changes):
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["arithmetic"].update(changes)
    (root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a state")
    return git(root, "rev-parse", "HEAD")


def ran(lines):
    return [line for line in lines if line.startswith("Running stage")]


def write_raw(path, count):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps({"prompt": f"p {n}", "answer": n}) for n in range(count)))
    return path


def mine(raw, **changes):
    shares = {"validation_share": 0.2, "gate_share": 0.2}
    return DataSettings.model_validate({"name": "mine", "path": raw, "format": "problems", **shares, **changes})
