"""Which code a run is of: the commit that is checked out, and whether that commit holds all of it.

A part or a recipe that lies in no commit yet changes what a run does as much as an edited one, so untracked files of
the folders that make up the project count too. What git ignores does not.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("flows", "tasks", "models", "recipes", "data")
"""Where a file in no commit makes a run another one."""
ELSEWHERE = (":(exclude)data/sources", ":(exclude)data/raw")
"""Data: whether a commit holds them is asked of their version (tasks/versions.py)."""
FILES = ("dvc.yaml", "dvc.lock", "params.yaml", "pyproject.toml", "cpu.lock", "cuda.lock")
"""What else decides what a run does, at the root."""
NO_COMMIT = "no commit"
DIRTY = "-dirty"


@dataclass(frozen=True)
class CodeVersion:
    """The code of a working directory."""

    commit: str
    """NO_COMMIT outside of a repository and before its first commit."""
    changed: tuple[str, ...] = ()
    """Files of the project that the commit does not hold as they are: edited, deleted, or in no commit."""

    @property
    def name(self) -> str:
        """The commit, with DIRTY behind it where it does not hold all."""
        return f"{self.commit}{DIRTY}" if self.changed else self.commit

    @property
    def unpinned(self) -> str:
        """Why no commit holds this code, in a few words; "" where one does."""
        if self.commit == NO_COMMIT:
            return "the code is in no commit (no git repository, or none was made in it yet)"
        if not self.changed:
            return ""
        shown = ", ".join(self.changed[:3]) + (f" and {len(self.changed) - 3} more" if len(self.changed) > 3 else "")
        return f"commit {self.commit[:8]} does not hold the code as it is: {shown}"


def code_version(root: Path) -> CodeVersion:
    """The version of the code in the repository `root`."""
    commit = git_output(root, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    if not commit:
        return CodeVersion(NO_COMMIT)
    listed = git_output(
        root,
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--",
        *FOLDERS,
        *FILES,
        *ELSEWHERE,
    )
    return CodeVersion(commit, tuple(sorted(entry[3:] for entry in listed.split("\0") if entry)))


def git_output(root: Path, *arguments: str) -> str:
    """What a git command prints; "" where it fails, as it does outside of a repository or before the first commit."""
    try:
        result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return result.stdout if result.returncode == 0 else ""
