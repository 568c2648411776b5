"""A server on loopback with the endpoints that huggingface_hub's upload of a model uses; it keeps what arrives."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_server import listening

COMMIT = "c" * 40


@dataclass
class SmallHub:
    """The repositories of a hub, and what its client sent."""

    address: str = ""
    repositories: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Id -> facts such as `private`."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Path in the repository -> content, after a commit."""
    objects: dict[str, bytes] = field(default_factory=dict)
    """SHA-256 -> content of large files."""
    requests: list[str] = field(default_factory=list)
    """Method and path of every request."""
    tokens: set[str] = field(default_factory=set)
    """Values of the header Authorization."""
    messages: list[str] = field(default_factory=list)
    """First lines of the commits."""
    refuses: int = 0
    """Status with which every request for a commit is refused; 0: none is."""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object, str]:
        """Return the status, the object and the error code of a reply."""
        path = path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            facts = self.repositories.get(match[1])
            return (200, facts, "") if facts else (404, {"error": "Repository not found"}, "RepoNotFound")
        if path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            private = given.get("visibility") == "private"
            facts = {"id": name, "modelId": name, "private": private, "sha": "0" * 40}
            self.repositories[name] = facts
            return 200, {"url": f"{self.address}/{name}", "name": name}, ""
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, ""
        if path.endswith("/preupload/main"):
            large = (".safetensors", ".gguf")
            modes = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(large) else "regular",
                 "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]  # fmt: skip
            return 200, {"files": modes}, ""
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {"oid": it["oid"], "size": it["size"],
                 "actions": {"upload": {"href": f"{self.address}/objects/{it['oid']}"}}}
                for it in json.loads(body)["objects"]
            ]  # fmt: skip
            return 200, {"transfer": "basic", "objects": objects}, ""
        if method == "PUT" and path.startswith("/objects/"):
            self.objects[path.rpartition("/")[2]] = body
            return 200, {}, ""
        if path.endswith("/commit/main"):
            if self.refuses:
                token = next(iter(self.tokens))
                return self.refuses, {"error": f"no right to write with {token}"}, ""
            self._commit([json.loads(line) for line in body.splitlines()])
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            return 200, {"commitUrl": f"{self.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT}, ""
        return 404, {"error": f"no such endpoint: {path}"}, ""

    def _commit(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                content = self.objects[value["oid"]]
                assert hashlib.sha256(content).hexdigest() == value["oid"]
                self.files[value["path"]] = content


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    """Run a hub on loopback without repositories."""
    hub = SmallHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self._body()
            hub.requests.append(f"{self.command} {self.path}")
            if token := self.headers.get("Authorization"):
                hub.tokens.add(token)
            status, values, code = hub.answer(self.command, self.path, body)
            data = json.dumps(values).encode()
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def log_message(self, *given: str) -> None:
            pass

    with listening(Handler) as hub.address:
        yield hub
