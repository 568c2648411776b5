"""A suite ready to run: its settings, the interpreter that has the harness, and the hash of all that it reads.

The interpreter is that of the recipe, of an environment variable, or of an environment in the state folder:

    python -m venv .rewardflow/harness/lm-eval
    .rewardflow/harness/lm-eval/bin/pip install -r lm-eval.lock
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from models.base.errors import UserError, shortened
from models.base.other_interpreter import variables_for_other_interpreter
from models.recipes.suites import HarnessName, SuiteSettings
from tasks.runner.contents import content_of_files

VARIABLES: Mapping[HarnessName, str] = {"lm-eval": "REWARDFLOW_LM_EVAL", "inspect": "REWARDFLOW_INSPECT"}
"""Environment variable with the interpreter of each harness."""
LOCK = "lm-eval.lock"
PACKAGES: Mapping[HarnessName, tuple[str, ...]] = {
    "lm-eval": ("lm-eval", "transformers", "tokenizers", "datasets", "evaluate", "sacrebleu", "rouge-score", "nltk"),
    "inspect": ("inspect-ai", "openai"),
}
"""Packages whose version changes a result; the first is the harness."""
NOT_HASHED = ("name", "python", "include_path", "guards")
"""Settings that do not change a result: the contents of files count, not their paths."""
TO_START = 120.0
"""Seconds that an interpreter may take to list its packages."""
_LIST = (
    "import importlib.metadata as m, json, sys\n"
    "versions = {}\n"
    "for name in sys.argv[1:]:\n"
    "    try: versions[name] = m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "print(json.dumps(versions))"
)
READ_NEXT_TO_TASKS = (".py", ".json", ".jsonl", ".csv", ".yaml", ".yml", ".txt", ".md")
"""Suffixes of the files next to a task of inspect that count as read by it."""


@dataclass(frozen=True)
class Suite:
    """A suite of a recipe, checked."""

    settings: SuiteSettings
    interpreter: str
    """Path of the interpreter that has the harness."""
    versions: Mapping[str, str]
    """Package of the harness, or one that it uses -> installed version."""
    digest: str
    """Hash of everything that decides the results except the policy: settings, versions, and bytes of the files."""


def read_suite(settings: SuiteSettings, home: Path) -> Suite:
    """Find the interpreter of a suite and hash its files.

    Args:
        settings: the suite's.
        home: the state folder.

    Raises:
        UserError: the interpreter or the harness is missing, or a file that the suite names.
    """
    interpreter = interpreter_of(settings, home)
    versions = installed(interpreter, PACKAGES[settings.harness])
    package = PACKAGES[settings.harness][0]
    if package not in versions:
        raise UserError(f"{settings.key}: {shortened(interpreter)} has no {package}; install {LOCK} there")
    plain = {name: value for name, value in settings.model_dump(mode="json").items() if name not in NOT_HASHED}
    files = {name: content_of_files(file) for name, file in _files(settings)}
    text = json.dumps([plain, dict(versions), files], sort_keys=True)
    return Suite(settings, interpreter, versions, hashlib.sha256(text.encode()).hexdigest())


def interpreter_of(settings: SuiteSettings, home: Path) -> str:
    """Return the path of the interpreter that has the harness of a suite.

    Raises:
        UserError: there is none.
    """
    harness, variable = settings.harness, VARIABLES[settings.harness]
    made = home / "harness" / harness / "bin" / "python"
    named = settings.python or os.environ.get(variable) or str(made)
    path = shutil.which(str(Path(named).expanduser()))
    if path is None:
        whose = "python" if settings.python else variable if os.environ.get(variable) else "python"
        raise UserError(
            f"{settings.key}.{whose}: {shortened(named)}: no such interpreter; make the environment from {LOCK} "
            "(docs/harness.md), or name the interpreter that has the harness"
        )
    return path


@cache
def installed(interpreter: str, packages: Sequence[str]) -> Mapping[str, str]:
    """Return the installed versions of packages in another interpreter; a package that it does not have is left out.

    Raises:
        UserError: the interpreter cannot be started.
    """
    try:
        listing = subprocess.run(
            [interpreter, "-c", _LIST, *packages],
            capture_output=True,
            text=True,
            timeout=TO_START,
            check=True,
            env=variables_for_other_interpreter(),
        )
        return dict(json.loads(listing.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UserError(f"{shortened(interpreter)}: cannot list its packages ({shortened(error, 200)})") from None


def _files(settings: SuiteSettings) -> Iterator[tuple[str, Path]]:
    """Yield every file or folder that a suite names, with a name that does not depend on its path."""
    if settings.harness == "inspect":
        for number, task in enumerate(settings.tasks):
            file = Path(task.partition("@")[0]).expanduser()
            if not file.is_file():
                raise UserError(f"{settings.key}.tasks: {shortened(file)}: no such file")
            for other in sorted(file.parent.iterdir()):
                if other.suffix in READ_NEXT_TO_TASKS and other.is_file():
                    yield f"task {number}: {other.name}", other
        return
    if settings.include_path is None:
        return
    folder = Path(settings.include_path).expanduser()
    if not folder.is_dir():
        raise UserError(f"{settings.key}.include_path: {shortened(folder)}: no such folder")
    yield "tasks", folder
    for file in sorted(folder.rglob("*.y*ml")):
        for path in _data_files(file):
            if path.resolve().is_relative_to(folder.resolve()):
                continue
            yield f"{file.relative_to(folder)}: {path.name}", path


def _data_files(file: Path) -> Iterator[Path]:
    """Yield the data files that a task file names, if they are on this machine.

    Raises:
        UserError: the file is not YAML, or one of its data files is missing.
    """
    try:
        task = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader with more tags
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{file}: not a task file in YAML ({shortened(reason, 200)})") from None
    arguments = task.get("dataset_kwargs") if isinstance(task, dict) else None
    named = arguments.get("data_files") if isinstance(arguments, dict) else None
    for name in _texts(named):
        if "://" in name:
            continue
        path = Path(name).expanduser()
        matching = [Path(each) for each in sorted(glob.glob(str(path), recursive=True)) if Path(each).is_file()]
        yield from matching
        if not matching:
            raise UserError(f"{file}: dataset_kwargs.data_files: {shortened(name)}: no such file on this machine")


class _Loader(yaml.SafeLoader):
    """Loader of task files, which reads the tags of lm-eval (`!function`) as text."""


_Loader.add_multi_constructor("!", lambda loader, tag, node: str(getattr(node, "value", "")))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
