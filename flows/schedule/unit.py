"""The schedule as a systemd service: the unit file for a checkout and a state folder, and its path."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from models.base.atomic_write import write_file
from models.base.errors import UserError

TEMPLATE = Path("deploy", "systemd", "rewardflow.service")
NAME = TEMPLATE.name


@dataclass(frozen=True)
class Unit:
    """A unit file and its path."""

    path: Path
    text: str
    user: bool
    """Whether it is a unit of the user's systemd; False for the machine's, which root installs."""

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Commands that start it, and show that it runs."""
        systemctl = "systemctl --user" if self.user else "systemctl"
        journal = "journalctl --user" if self.user else "journalctl"
        linger = ("loginctl enable-linger      # or it ends when you log out",) if self.user else ()
        return (
            f"{systemctl} daemon-reload",
            f"{systemctl} enable --now {NAME}",
            *linger,
            f"{journal} --unit {NAME} --follow",
        )


def unit_of(checkout: Path, home: Path, *, root: bool | None = None) -> Unit:
    """Return the unit that serves the schedule of a checkout.

    Args:
        checkout: folder of prefect.yaml.
        home: state folder.
        root: whether it is a unit of the machine; None: if the current user is root.

    Raises:
        UserError: the checkout has no template, or a path has characters that a unit file cannot hold.
    """
    root = os.geteuid() == 0 if root is None else root
    config = Path("/etc") if root else Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    facts = {
        "checkout": checkout,
        "home": home,
        "environment": config / "rewardflow" / "environment",
        "command": Path(sys.prefix) / "bin" / "rewardflow",
    }
    for path in facts.values():
        if any(character.isspace() or character in "\"'\\%$" for character in str(path)):
            raise UserError(f"{path}: a unit of systemd cannot name it; use a path without spaces, quotes, %, $ and \\")
    try:
        template = Template((checkout / TEMPLATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{checkout / TEMPLATE} is not there; run this in a checkout of Rewardflow") from None
    lines = template.template.splitlines()[1:]  # the first describes the template
    target = "multi-user.target" if root else "default.target"
    text = Template("\n".join(lines) + "\n").substitute({key: str(path) for key, path in facts.items()}, target=target)
    return Unit(config / "systemd" / ("system" if root else "user") / NAME, text, user=not root)


def install(unit: Unit) -> None:
    """Write the unit file; nothing is started.

    Raises:
        UserError: its folder cannot be written.
    """
    try:
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(unit.path, unit.text)
    except OSError as error:
        raise UserError(f"{unit.path} cannot be written ({error.strerror})") from None
