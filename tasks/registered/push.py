"""Upload of an exported version to a repository of the Hugging Face hub, in one commit.

The token comes from the hub's own client: HF_TOKEN, or the login of `hf auth login`. It is passed to the client alone.
No message of this module contains it, even if the hub's answer does.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models.base.disk import readable_size
from models.base.errors import UserError, shortened

NETWORK = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
"""Errors of the operating system that mean that a server cannot be reached."""
REPOSITORY = "OWNER/NAME"
"""Form of a repository's id."""


@dataclass(frozen=True)
class PushedFile:
    """A file to upload: its path in the repository, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class PushedCommit:
    """The commit of an upload."""

    address: str
    """Address of the repository."""
    commit: str
    """Hash of the commit."""


def require_repository(repository: str) -> None:
    """Check that a repository's id has the form OWNER/NAME. Raise UserError otherwise."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", repository, flags=re.ASCII):
        raise UserError(f"{shortened(repository)!r} is not the id of a repository on the hub, which is {REPOSITORY}")


def target_address(repository: str) -> str:
    """Return the address of a repository on the hub in use (HF_ENDPOINT)."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{repository}"


def files_of(folder: Path) -> list[PushedFile]:
    """List the files of an exported folder, sorted by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [PushedFile(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]


def listing(files: list[PushedFile]) -> str:
    """Format files and their sizes as a table, with the sum."""
    rows = [(file.path, readable_size(file.size)) for file in files]
    rows.append((f"{len(files)} files", readable_size(sum(file.size for file in files))))
    width = max(len(path) for path, _ in rows)
    return "\n".join(f"  {path:{width}}  {size:>10}" for path, size in rows)


def has_token() -> bool:
    """Return whether the hub's client has a token."""
    from huggingface_hub import get_token

    return bool(get_token())


def push(folder: Path, repository: str, message: str, *, private: bool = False) -> PushedCommit:
    """Upload every file of a folder in one commit. The repository is created if it does not exist.

    Files of the repository with other names are left as they are.

    Args:
        folder: an exported folder.
        repository: OWNER/NAME.
        message: first line of the commit.
        private: whether the repository must be private; a new one is created so.

    Raises:
        UserError: no token, no network, the hub refuses, or `private` and the repository is public.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    require_repository(repository)
    token = get_token()
    if not token:
        raise UserError("no token for the hub; set HF_TOKEN, or log in with `hf auth login`")
    if constants.HF_HUB_OFFLINE:
        raise UserError("HF_HUB_OFFLINE is set; unset it to push")
    hub = HfApi(token=token)
    with _one_line(repository, token):
        try:
            there = hub.repo_info(repository)
        except RepositoryNotFoundError:
            hub.create_repo(repository, private=private, exist_ok=True)
        else:
            if private and not there.private:
                raise UserError(f"{repository} is public; choose another repository, or make it private on the hub")
        files = [CommitOperationAdd(file.path, folder / file.path) for file in files_of(folder)]
        done = hub.create_commit(repository, files, commit_message=message)
    return PushedCommit(target_address(repository), str(done.oid))


@contextmanager
def _one_line(repository: str, token: str) -> Iterator[None]:
    """Turn an error of the hub's client into a UserError without the token."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except UserError:
        raise
    except Exception as error:
        causes = list(_causes(error))
        refused = next((cause for cause in causes if isinstance(cause, HfHubHTTPError)), None)
        lost = next((cause for cause in causes if isinstance(cause, NETWORK)), None)
        if refused is not None:
            status = getattr(refused.response, "status_code", "an error")
            hint = "; check the token and its right to write" if status in (401, 403) else ""
            stated = shortened(" ".join((refused.server_message or "").split()), 160)
            line = f"{repository}: the hub answers {status}{f' ({stated})' if stated else ''}{hint}"
        elif lost is not None:
            line = f"{target_address(repository)}: the hub cannot be reached ({type(lost).__name__})"
        else:
            line = f"{repository}: the upload failed ({type(error).__name__}: {shortened(error, 160)})"
        raise UserError(line.replace(token, "***")) from None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that it came from."""
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__ or at.__context__
