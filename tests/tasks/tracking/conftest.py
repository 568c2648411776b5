"""Fixtures: a real MLflow store for every test, a real server on request, and small real model folders."""

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.tracking import store


@pytest.fixture
def home(tmp_path: Path, new_store: Callable[[Path], Path]) -> Path:
    """Make a state folder with an embedded store, and configure the store."""
    return new_store(tmp_path / "home")


class Server:
    """A real MLflow server that can be killed and started again on the same store and port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}",
            "--artifacts-destination", str(self.folder / "artifacts"),
        ]  # fmt: skip
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_TRACKING")}
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=clean, start_new_session=True)
        for _ in range(240):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.address}/health", timeout=2):
                return
            assert self.process.poll() is None, (self.folder / "server.log").read_text()[-2000:]
            time.sleep(0.25)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def session_server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_database, folder / "mlflow.db")
    running = Server(folder)
    yield running
    running.kill()


@pytest.fixture
def server(session_server: Server, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a running server that this process is configured for. At the start of each test, its store has no runs."""
    with (
        contextlib.closing(sqlite3.connect(empty_database)) as empty,
        contextlib.closing(sqlite3.connect(session_server.folder / "mlflow.db")) as database,
    ):
        empty.backup(database)
    if session_server.process is None:
        session_server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", session_server.address)
    store.configure(tmp_path / "home")
    return session_server


def write_tiny(folder: Path, architecture: str) -> Path:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<pad>", "<eos>", "<unk>", *"0123456789+-*=;"]
    plain = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    config = transformers.Qwen3Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=32, pad_token_id=0, eos_token_id=1, num_labels=1,
    )  # fmt: skip
    getattr(transformers, architecture)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("policy"), "Qwen3ForCausalLM")


@pytest.fixture(scope="session")
def reward_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("reward"), "Qwen3ForSequenceClassification")
