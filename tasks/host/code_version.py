"""The version of the code that a run uses: the checked-out git commit, and whether it contains all of that code.

An uncommitted part or recipe changes a run as much as an edited one, so untracked files of the folders that make up the
project count too. Files that git ignores do not. The commit is the working directory's. The running code may be
elsewhere (an editable installation of another clone), and so may the recipe: then the commit pins them only if it
contains exactly the same bytes. Code that was installed as a wheel is pinned by its release, and the commit is that of
the user's project.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from models.base.package_files import CODE, INSTALLED, PROJECT
from tasks.host.release import installed_release

FOLDERS = ("flows", "tasks", "models", "recipes", "data")
"""Folders in which an uncommitted file makes a different run."""
ELSEWHERE = (":(exclude)data/sources", ":(exclude)data/raw")
"""Folders of data that are not compared with the commit here: their version does it (tasks/data/versions.py)."""
FILES = ("dvc.yaml", "dvc.lock", "params.yaml", "pyproject.toml", "cpu.lock", "cuda.lock")
"""Other files, at the root, that determine a run."""
RUNNING = ("flows", "tasks", "models", "data/expectations")
"""Parts of it that determine a run."""
NO_COMMIT = "no commit"
NO_REPOSITORY = "no git repository"
DIRTY = "-dirty"


@dataclass(frozen=True)
class CodeVersion:
    """The code of a working directory."""

    commit: str
    """Git commit; NO_COMMIT outside of a repository, before its first commit, and if git refuses the folder."""
    changed: tuple[str, ...] = ()
    """Files of the project that differ from the commit: edited, deleted, or in no commit."""
    doubts: tuple[str, ...] = ()
    """Other reasons why the commit does not contain the running code, each in a few words."""
    without: str = ""
    """The reason for a missing commit, in a few words; "" if there is a commit."""
    release: str = ""
    """Installed release of the running code; "" if it runs from a clone."""

    @property
    def name(self) -> str:
        """The commit, followed by DIRTY if it does not contain all of the code."""
        return f"{self.commit}{DIRTY}" if self.changed or self.doubts else self.commit

    @property
    def unpinned(self) -> str:
        """Why no commit contains this code, in a few words; "" if one does."""
        if self.commit == NO_COMMIT:
            return f"the code is in no commit ({self.without})"
        edited = f"commit {self.commit[:8]} does not hold the code as it is: {_some(self.changed)}"
        return "; ".join([*([edited] if self.changed else []), *self.doubts])


def code_version(root: Path) -> CodeVersion:
    """Return the version of the code in the repository `root`."""
    commit = git_output(root, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    if not commit:
        return CodeVersion(NO_COMMIT, without=without_commit(root))
    listing, failure = ask_git(
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
    if failure:
        return CodeVersion(commit, doubts=(f"what commit {commit[:8]} holds is unknown, {failure}",))
    return CodeVersion(commit, tuple(sorted(_printable(entry[3:]) for entry in listing.split("\0") if entry)))


def running_version(root: Path, *recipes: Path, given: Sequence[Path] = (), package: Path = CODE) -> CodeVersion:
    """Return the version of the code that is running, which includes the recipes' files.

    It is the commit of `root`, and whether that contains the files of `root`, the code of `package` and the recipes.

    Args:
        root: the repository whose commit is recorded.
        recipes: the recipes' files.
        given: the user's own files that they name.
        package: root of the running code.
    """
    installed = installed_release() if INSTALLED and package == CODE else None
    version = replace(code_version(root), release=installed.name if installed else "")
    if version.commit == NO_COMMIT:
        return version
    doubts = list(version.doubts)
    if installed is not None and installed.changed:
        doubts.append(f"the installed package was changed after its installation: {_some(installed.changed)}")
    elif installed is None and package != root.resolve() and (differing := _not_in_commit(root, package)):
        doubts.append(
            f"what runs is the code of {package}, which commit {version.commit[:8]} does not hold: {_some(differing)}"
        )
    files = [*(("recipe", file) for file in recipes), *(("file", file) for file in given)]
    for kind, file in files:
        inside = file.resolve()
        if installed is not None and inside.is_relative_to(PROJECT):
            continue
        if not inside.is_relative_to(root.resolve()):
            doubts.append(f"the {kind} {file} lies outside of the repository")
        elif (name := inside.relative_to(root.resolve()).as_posix()) not in version.changed:
            committed = _blobs(root, name).get(name)
            if committed is None or committed != _blob(inside, committed):
                doubts.append(f"commit {version.commit[:8]} does not hold the {kind} {file} as it is")
    return replace(version, doubts=tuple(doubts))


def without_commit(root: Path) -> str:
    """Return the reason why git has no commit of `root`, in a few words, with a remedy if git refuses the folder."""
    _, failure = ask_git(root, "rev-parse", "--git-dir")
    if not failure:
        return "no commit was made in the git repository yet"
    reason = failure.partition("fatal: ")[2] or failure
    if reason.startswith("not a git repository"):
        return NO_REPOSITORY
    remedy = ""
    if "dubious ownership" in reason:  # owned by another user, as in a container that runs under another user id
        remedy = f"; if you trust it: git config --global --add safe.directory {root.resolve()}"
    return f"git refuses it: {reason}{remedy}"


def git_output(root: Path, *arguments: str) -> str:
    """Return the output of a git command; "" if it fails, e.g. outside of a repository or before the first commit."""
    return ask_git(root, *arguments)[0]


def ask_git(root: Path, *arguments: str) -> tuple[str, str]:
    """Return a git command's output and "", or "" and the reason for its failure. Invalid UTF-8 becomes surrogates."""
    try:
        process = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # its messages are parsed
        )
    except OSError as error:  # git is not installed
        return "", f"git {arguments[0]}: {error.strerror}"
    if process.returncode == 0:
        return process.stdout, ""
    lines = (process.stderr or process.stdout).strip().splitlines() or [f"exit status {process.returncode}"]
    return "", f"git {arguments[0]}: {_printable(lines[0])}"


def _not_in_commit(root: Path, package: Path) -> list[str]:
    """Return the files of the code in `package` that differ from the commit of `root`, are not in it, or only in it."""
    committed = {name: blob for name, blob in _blobs(root, *RUNNING).items() if _is_code(name)}
    present = {
        file.relative_to(package).as_posix(): file
        for folder in RUNNING
        for file in (package / folder).rglob("*")
        if file.is_file() and _is_code(file.relative_to(package).as_posix())
    }
    differing = [
        name
        for name, file in present.items()
        if name not in committed or _blob(file, committed[name]) != committed[name]
    ]
    return sorted(_printable(name) for name in {*differing, *(committed.keys() - present.keys())})


def _is_code(name: str) -> bool:
    return name.endswith(".py") or name.startswith("data/expectations/")


def _blobs(root: Path, *paths: str) -> dict[str, str]:
    """Return path -> git's hash of the content, for all files below `paths` in the checked-out commit of `root`."""
    listing = git_output(root, "ls-tree", "-r", "-z", "HEAD", "--", *paths)
    entries = [entry.partition("\t") for entry in listing.split("\0") if entry]
    return {name: facts.split()[2] for facts, _, name in entries}


def _blob(file: Path, like: str) -> str:
    """Return git's hash of a file's content, by the algorithm of the hash `like`."""
    content = file.read_bytes()
    return hashlib.new("sha1" if len(like) == 40 else "sha256", b"blob %d\0%b" % (len(content), content)).hexdigest()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _printable(text: str) -> str:
    """Return `text` with invalid and unprintable characters as escapes, so that it fits into one line."""
    escaped = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in escaped)
