"""Commands of `rewardflow`, run one after the other in one process, so that their packages are imported only once.

Start it as `python smokes.py` in a project. Each line of standard input is a command as JSON: its arguments and the
file for its output. Each line of standard output is the exit status of a command.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    """Result of a command."""

    status: int
    said: str
    """Output and error output, in the order in which they were written."""


class Smokes:
    """The process that runs the commands, for use by tests."""

    def __init__(self, project: Path, environment: dict[str, str], folder: Path) -> None:
        """Set up the process, which starts with the first command.

        Args:
            project: working directory of the commands.
            environment: environment of the commands, including the state folder.
            folder: folder for their output.
        """
        self._start: Any = {"cwd": project, "env": environment}
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, name: str, *arguments: str) -> Ended:
        """Run `rewardflow run NAME --smoke ARGUMENTS`."""
        if self._process is None or self._process.poll() is not None:
            here = [sys.executable, str(Path(__file__).resolve())]
            self._process = subprocess.Popen(
                here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **self._start
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        said = self._folder / f"{name.replace('/', '_')}.log"
        asked = {"arguments": ["run", name, "--smoke", *arguments], "said": str(said)}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return Ended(int(answer) if answer else self._process.wait(), said.read_text())

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=60)


@contextlib.contextmanager
def written_to(file: str) -> Iterator[None]:
    """Redirect all output to `file`, including that of C libraries and of existing handlers."""
    kept = os.dup(1), os.dup(2)
    with open(file, "w") as target:
        for number in (1, 2):
            os.dup2(target.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


def main() -> None:
    """Run the commands of standard input until it ends."""
    sys.path.insert(0, os.getcwd())  # import the project's own code, as `python -m` does
    from flows import command_line

    for line in sys.stdin:
        asked = json.loads(line)
        sys.argv = ["rewardflow", *asked["arguments"]]
        status = 0
        with written_to(asked["said"]):
            try:
                command_line.main()
            except SystemExit as ended:
                status = int(ended.code or 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
