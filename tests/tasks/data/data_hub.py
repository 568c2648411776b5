"""A hub of data sets on loopback, and the cache of the hub's client, both written by the test."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.loopback_server import listening

COMMIT, EARLIER = "c" * 40, "e" * 40
TOKEN = "hf_oYwzTestTokenThatMustNotAppear"
CARD = """---
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train-*
  - split: validation
    path: main/dev.parquet
  - split: test
    path: main/test-*
- config_name: extra
  data_files: extra.jsonl
---
# Sums
"""


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as the bytes of a Parquet file."""
    out = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def sums(first: int, last: int) -> bytes:
    """Return additions as messages, in Parquet."""
    return parquet([
        {"messages": [{"role": "user", "content": f"{n} + 1 ?"}, {"role": "assistant", "content": str(n + 1)}]}
        for n in range(first, last)
    ])  # fmt: skip


def sums_files() -> dict[str, bytes]:
    """Return the files of a data set with two configurations."""
    return {
        "README.md": CARD.encode(),
        "main/train-00000-of-00002.parquet": sums(0, 30),
        "main/train-00001-of-00002.parquet": sums(30, 60),
        "main/dev.parquet": sums(60, 70),
        "main/test-00000-of-00001.parquet": sums(70, 90),
        "extra.jsonl": b"\n".join(json.dumps({"prompt": f"{n} ?", "answer": n}).encode() for n in range(5)),
        "large.bin": b"0" * 100,
    }


def write_cache(cache: Path, files: Mapping[str, bytes], name: str = "team/sums", commit: str = COMMIT) -> None:
    """Write a data set into the cache of the hub's client, with `main` as the commit."""
    folder = cache / f"datasets--{name.replace('/', '--')}"
    for path, content in files.items():
        (folder / "snapshots" / commit / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "snapshots" / commit / path).write_bytes(content)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs/main").write_text(commit)


@dataclass
class DataHub:
    """The data sets of a hub, and the requests to it."""

    files: dict[str, bytes] = field(default_factory=sums_files)
    commit: str = COMMIT
    """Commit of the branch `main`."""
    refuses: tuple[int, str] = (0, "")
    """Status and error code of every reply; 0: none is refused."""
    requests: list[str] = field(default_factory=list)
    address: str = ""

    def reply(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Return status, content and headers of a reply."""
        status, code = self.refuses
        if status:
            return status, b'{"error": "refused"}', {"X-Error-Code": code, "X-Error-Message": "refused"}
        begin = "/api/datasets/team/sums/revision/"
        if path.startswith(begin):
            if path.removeprefix(begin) not in ("main", "v1", self.commit):
                return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
            names = [{"rfilename": name} for name in self.files]
            return 200, json.dumps({"id": "team/sums", "sha": self.commit, "siblings": names}).encode(), {}
        name = path.removeprefix(f"/datasets/team/sums/resolve/{self.commit}/")
        if name in self.files:
            content = self.files[name]
            tag = hashlib.sha256(content).hexdigest()
            return 200, content, {"ETag": f'"{tag}"', "X-Repo-Commit": self.commit}
        return 404, b"{}", {"X-Error-Code": "RepoNotFound"}


@contextmanager
def data_hub() -> Iterator[DataHub]:
    """Run a hub on loopback with the data set team/sums."""
    hub = DataHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            status, content, headers = hub.reply(self.path.partition("?")[0])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *given: str) -> None:
            pass

    with listening(Handler) as hub.address:
        yield hub
