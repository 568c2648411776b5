"""Files of a data set on the Hugging Face hub: the commit of a revision, the names of its files, and their bytes.

Everything is read from the client's cache if the hub cannot be reached or HF_HUB_OFFLINE is set. Nothing but data files
and the data set's card is fetched, and no code of a repository is run.

The cache may have only some files of a commit. Their list is kept when the hub gives it, so that a part is never taken
for the whole data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from models.base.atomic_write import write_file
from models.base.disk import out_of_space
from models.base.errors import UserError
from models.datasets.hub_reference import HubReference

PATIENCE = 10.0
"""Timeout of a request to the hub, seconds."""
CARDS = ("README.md", ".huggingface.yaml")
"""Files that describe the configurations and splits of a data set."""


class Snapshot(NamedTuple):
    """The files of a data set at a commit."""

    commit: str
    names: tuple[str, ...]
    """Paths of its files in the repository."""
    folder: Path | None = None
    """Folder of the snapshot in the cache; None: files are fetched from the hub."""
    why_cached: str = ""
    """Why the hub is not used."""
    list_known: bool = True
    """Whether `names` are the files on the hub, and not just those in the cache."""


def find_snapshot(reference: HubReference) -> Snapshot:
    """Return the commit and the files that a reference means: those on the hub, or in the cache without a connection.

    Raises:
        UserError: neither the hub nor the cache has the data set or its revision, or it needs a token.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return _cached(reference, "HF_HUB_OFFLINE is set")
    try:
        with _one_line(reference):
            info = HfApi().dataset_info(reference.repository, revision=reference.revision, timeout=PATIENCE)
    except (UserError, HfHubHTTPError):
        raise
    except Exception as error:  # any error of the hub's client without a network
        return _cached(reference, f"the hub cannot be reached ({type(error).__name__})")
    names = tuple(sorted(entry.rfilename for entry in info.siblings or []))
    write_file(_list_of(reference, str(info.sha)), json.dumps(names))
    write_file(_resolved_file(reference), str(info.sha))
    return Snapshot(str(info.sha), names)


def fetch_file(reference: HubReference, snapshot: Snapshot, name: str) -> Path:
    """Return the path of a file of a snapshot in the client's cache; it is downloaded if the cache does not have it.

    Raises:
        UserError: the hub refuses it, or the connection ends.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if snapshot.folder is not None:
        if not (snapshot.folder / name).is_file():
            raise UserError(f"{reference}: {name} is not in the cache of the hub's client, and {snapshot.why_cached}")
        return snapshot.folder / name
    with _one_line(reference, name):
        try:
            path = hf_hub_download(
                reference.repository,
                name,
                repo_type="dataset",
                revision=snapshot.commit,
                etag_timeout=PATIENCE,
            )
        except HfHubHTTPError:
            raise
        except LocalEntryNotFoundError as error:  # no answer, or an answer without the facts about the file
            if isinstance(error.__cause__, HfHubHTTPError):
                raise error.__cause__ from None
            raise _not_fetched(reference, name, error.__cause__ or error) from None
        except Exception as error:  # any error of the hub's client when a connection ends
            if out_of_space(error):
                raise
            raise _not_fetched(reference, name, error) from None
    return Path(path)


def _not_fetched(reference: HubReference, name: str, error: BaseException) -> UserError:
    return UserError(f"{reference}: {name} cannot be fetched ({type(error).__name__}); run again to continue")


def _list_of(reference: HubReference, commit: str) -> Path:
    """Return the path of the list of files of a commit."""
    return reference._replace(revision=commit).folder.parent / "files.json"


def _resolved_file(reference: HubReference) -> Path:
    """Return the path of the file with the commit that a branch or tag was when the hub was last used."""
    return reference.repository_folder / f"revision-{quote(reference.revision, safe='')}"


def _cached(reference: HubReference, why: str) -> Snapshot:
    """Return the snapshot of the cache; without files if the rows of the reference are stored already."""
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, IncompleteSnapshotError, LocalEntryNotFoundError

    resolved = _resolved_file(reference)
    revision = resolved.read_text(encoding="utf-8") if resolved.is_file() else reference.revision
    if reference._replace(revision=revision).folder.is_dir():
        return Snapshot(revision, ())
    try:
        folder = Path(
            snapshot_download(reference.repository, repo_type="dataset", revision=revision, local_files_only=True)
        )
    except IncompleteSnapshotError as error:
        folder = Path(error.snapshot_path)
    except (LocalEntryNotFoundError, OSError):
        raise UserError(f"{reference}: the data set is not in the cache of the hub's client, and {why}") from None
    commit = folder.name
    if (kept := _list_of(reference, commit)).is_file():
        return Snapshot(commit, tuple(json.loads(kept.read_text(encoding="utf-8"))), folder, why)
    try:
        entries = get_cached_repo_tree(reference.repository, repo_type="dataset", revision=commit)
        return Snapshot(commit, tuple(sorted(entry.path for entry in entries)), folder, why)
    except (CachedRepoTreeNotFoundError, LocalEntryNotFoundError, OSError):
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return Snapshot(commit, tuple(names), folder, why, list_known=False)


@contextmanager
def _one_line(reference: HubReference, name: str = "") -> Iterator[None]:
    """Replace the errors with which a hub answers by one line, which never has the request or its token."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    named = f"{reference}: {name}: " if name else f"{reference}: "
    try:
        yield
    except GatedRepoError:
        raise UserError(f"{named}the data set is gated; accept its terms on the hub and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise UserError(f"{named}no such data set on the hub (a private one needs HF_TOKEN)") from None
    except RevisionNotFoundError:
        raise UserError(f"{named}the data set has no revision '{reference.revision}'") from None
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        needs = "; it needs another HF_TOKEN" if status in (401, 403) else ""
        raise UserError(f"{named}the hub answers {status or 'with an error'}{needs}") from None
