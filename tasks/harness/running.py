"""One run of a harness on a policy: the harness in a process of its own, the policy behind a server on loopback.

The process has no proxy, no key of a hub, and is offline: HF_HUB_OFFLINE and HF_DATASETS_OFFLINE are set. It ends with
this run, whatever happens.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from models.agents.gateway.answers import MODEL
from models.agents.gateway.server import Gateway, PendingRequest
from models.base.errors import UserError, last_line, shortened
from models.base.http_answers import LOOPBACK
from models.base.other_interpreter import variables_for_other_interpreter
from tasks.harness.server import Policy
from tasks.harness.suite import Suite

PROGRAM = Path(__file__).with_name("lm_eval_program.py")
OUTCOME = "outcome.json"
LOG = "harness.log"
POLL = 0.1
"""Seconds between two looks at the process."""
TOGETHER = 0.02
"""Seconds within which further requests join a batch."""
OFFLINE = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"),
    **dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "HF_HUB_DISABLE_PROGRESS_BARS"), "1"),
    "TOKENIZERS_PARALLELISM": "false",
    "INSPECT_DISPLAY": "plain",
    "NO_PROXY": ",".join(LOOPBACK),
    "no_proxy": ",".join(LOOPBACK),
}
_DROPPED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN", "OPENAI_", "AWS_", "MLFLOW_")
"""Beginnings of the names of further variables that the process does not get."""


@dataclass(frozen=True)
class ServedPolicy:
    """A policy that a harness measures."""

    folder: Path
    """Model folder; the harness reads only its tokenizer."""
    answers: Policy
    """Answers requests, with an engine."""
    longest: int
    """Tokens of a prompt and its completion together."""
    batch: int
    """Prompts of a request."""
    trust_remote_code: bool = False


def run_lm_eval(suite: Suite, policy: ServedPolicy, folder: Path) -> Mapping[str, Any]:
    """Run lm-evaluation-harness on a policy. Its samples, its log and its outcome are written to `folder`.

    Returns:
        The outcome, see `lm_eval_program`.

    Raises:
        UserError: a task is unknown or needs the network, a request cannot be answered, or the process failed.
    """
    settings = suite.settings
    with Gateway() as gateway:
        request = {
            "tasks": settings.tasks, "include_path": settings.include_path, "limit": settings.limit,
            "few_shot": settings.few_shot, "generation": settings.generation, "chat": settings.chat,
            "system": settings.system, "unsafe_code": settings.unsafe_code, "seed": settings.seed,
            "folder": str(policy.folder.absolute()), "longest": policy.longest, "batch": policy.batch,
            "trust_remote_code": policy.trust_remote_code, "base_url": gateway.address, "key": gateway.key("suite"),
            "output": str(folder.absolute()),
        }  # fmt: skip
        status = _serve(gateway, policy.answers, (suite.interpreter, str(PROGRAM)), json.dumps(request), folder, {})
    outcome = _outcome(folder / OUTCOME)
    if policy.answers.refused:
        raise UserError(f"{settings.key}: {policy.answers.refused}")
    if outcome is None:
        raise UserError(f"{settings.key}: lm-eval ended with status {status}: {_last_line(folder / LOG)}")
    if "error" in outcome:
        raise UserError(f"{settings.key}: {outcome['error']}")
    return outcome


def run_inspect(suite: Suite, policy: ServedPolicy, folder: Path) -> list[Path]:
    """Run inspect-ai on a policy. Returns its logs in JSON, one for each task, in the order of the tasks.

    Raises:
        UserError: a request cannot be answered, or the process failed.
    """
    settings, logs = suite.settings, folder / "logs"
    with Gateway() as gateway:
        command = [
            suite.interpreter, "-m", "inspect_ai", "eval", *settings.tasks, "--model", f"openai-api/local/{MODEL}",
            "--log-dir", str(logs.absolute()), "--log-format", "json", "--no-fail-on-error", "--max-retries", "0",
            "--display", "plain", "--seed", str(settings.seed), "--max-connections", str(policy.batch),
        ]  # fmt: skip
        command += ["--limit", str(settings.limit)] if settings.limit is not None else []
        command += ["--max-tokens", str(settings.max_tokens)] if settings.max_tokens is not None else []
        access = {"LOCAL_BASE_URL": gateway.address, "LOCAL_API_KEY": gateway.key("suite")}
        status = _serve(gateway, policy.answers, command, "", folder, access)
    if policy.answers.refused:
        raise UserError(f"{settings.key}: {policy.answers.refused}")
    written = sorted(logs.glob("*.json"))
    if status or len(written) != len(settings.tasks):
        raise UserError(f"{settings.key}: inspect ended with status {status}: {_last_line(folder / LOG)}")
    return written


def _serve(
    gateway: Gateway,
    answers: Policy,
    command: Sequence[str],
    given: str,
    folder: Path,
    variables: Mapping[str, str],
) -> int:
    """Start a process, answer its requests until it ends, and return its exit status."""
    kept = variables_for_other_interpreter(_DROPPED)
    with (folder / LOG).open("wb") as log:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                env={**kept, **OFFLINE, **variables},
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"{shortened(command[0])}: cannot be started ({error.strerror})") from None
        try:
            assert process.stdin is not None
            try:
                process.stdin.write(given.encode())
                process.stdin.close()
            except OSError:  # it has ended; its status is reported
                pass
            while (status := process.poll()) is None:
                if waiting := _waiting(gateway):
                    answers.answer(waiting)
            return status
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def _waiting(gateway: Gateway) -> list[PendingRequest]:
    """Return the requests that wait, after at most `POLL` seconds; others may join them for `TOGETHER` seconds."""
    waiting: list[PendingRequest] = []
    while True:
        try:
            event = gateway.events.get(timeout=TOGETHER if waiting else POLL)
        except Empty:
            return waiting
        if isinstance(event, PendingRequest):
            waiting.append(event)


def _outcome(file: Path) -> Mapping[str, Any] | None:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _last_line(file: Path) -> str:
    line = last_line(file.read_text(encoding="utf-8", errors="replace")) or "it printed nothing"
    return f"{line} (the rest is in {file})"
