"""Program that runs an environment of `verifiers` in the interpreter that has it, for `models.agents.foreign.process`.

    INTERPRETER models/agents/foreign/verifiers_program.py

It reads requests on its standard input and writes answers on its standard output, one JSON object a line. Everything
that a package prints goes to standard error. It ends when its input ends.

    {"do": "load", "id": ..., "arguments": {...}}        {"versions": {package: version}, "tasks": number or null}
    {"do": "list", "split": ..., "count": ...}           {"prompts": [text, ...]}
    {"do": "play", "split": ..., "task": ..., "base_url": ..., "key": ..., "model": ...}
                                                         {"reward": ..., "metrics": {name: number}}
    {"do": "stop", "number": ...}                        no answer; the request with that number is given up

Each request but the last has a `number`, which its answer repeats. The answer to a request that fails is
`{"error": text}`.

Two generations of the package are supported. Up to version 0.1, a package has a function `load_environment`. Later, a
package has a task set, and the conversation is the harness `null` of verifiers. Its program usually runs in a process
of its own, whose dependencies `uv` installs; here the same program runs in this process, which has them already.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MOST_TASKS = 1_000_000
"""Number of tasks at which a list of tasks counts as endless."""
SHOWN = 500
"""Number of characters of an error's text that is passed on."""


class PackageUnusable(Exception):
    """Error whose text is meant for the user."""


class ProgramConversations:
    """An environment of verifiers up to version 0.1."""

    def __init__(self, verifiers: Any, name: str, arguments: Mapping[str, Any]) -> None:
        """Load the environment `name`; `arguments` are those of its function `load_environment`."""
        self._verifiers = verifiers
        self._environment = verifiers.load_environment(name, **arguments)
        if not hasattr(self._environment, "run_rollout"):
            raise PackageUnusable("this version of verifiers has no run_rollout; 0.1.14 has")
        self._rows: dict[str, Any] = {}

    def count(self) -> int | None:
        """Return the number of tasks in the split `train`."""
        return len(self._split("train"))

    def prompts(self, split: str, count: int) -> list[str]:
        """Return the prompts of the first `count` tasks as texts."""
        rows = self._split(split)
        return [_as_text(rows[place]["prompt"]) for place in range(min(count, len(rows)))]

    async def play(self, request: Mapping[str, Any], variable: str) -> dict[str, Any]:
        """Play an episode; the environment variable `variable` holds the key."""
        rows, task = self._split(request["split"]), request["task"]
        if not 0 <= task < len(rows):
            raise PackageUnusable(f"task {task} does not exist: the split {request['split']} has {len(rows)}")
        client = importlib.import_module("verifiers.types").ClientConfig(
            api_base_url=request["base_url"], api_key_var=variable, max_retries=0
        )
        played = await self._environment.run_rollout(rows[task], client, request["model"], {}, max_retries=0)
        if error := played.get("error"):
            raise PackageUnusable(
                _first_line(str(error.get("error_chain_str", error) if isinstance(error, dict) else error))
            )
        return {"reward": float(played["reward"]), "metrics": _numbers(played.get("metrics") or {})}

    def _split(self, split: str) -> Any:
        if split not in self._rows:
            read = self._environment.get_eval_dataset if split == "eval" else self._environment.get_dataset
            self._rows[split] = read()
        return self._rows[split]


class TaskSets:
    """A task set of later versions, with its own environment if it has one."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Load the task set `name`; `arguments` are keys of the environment's configuration."""
        loaders = importlib.import_module("verifiers.v1.utils.loaders")
        agents = importlib.import_module("verifiers.v1.configs.agent")
        _run_null_harness_here()
        given = json.loads(json.dumps(dict(arguments)))
        given["taskset"] = {"id": name, **given.get("taskset", {})}
        kind = loaders.env_config_type(name, given.get("id", ""))
        for role, declared in kind.model_fields.items():
            if isinstance(declared.default, agents.AgentConfig):
                seat = given.setdefault(role, {})
                seat.setdefault("harness", {"id": "null"})
                seat.setdefault("runtime", {"type": "subprocess"})
        self._environment = loaders.load_environment(loaders.resolve_env_config(given))
        self._waiting: Iterator[Any] = iter(self._environment.taskset)
        self._tasks: list[Any] = []
        self._ready: asyncio.Future[None] | None = None
        self._holder: asyncio.Task[None] | None = None

    def count(self) -> int | None:
        """Return the number of tasks; None if they do not end."""
        if not self._environment.taskset.bounded:
            return None
        self._read(MOST_TASKS)
        return len(self._tasks)

    def prompts(self, split: str, count: int) -> list[str]:
        """Return the prompts of the first `count` tasks as texts; a task set has no splits."""
        self._read(count)
        return [task.data.prompt_text for task in self._tasks[:count]]

    async def play(self, request: Mapping[str, Any], variable: str) -> dict[str, Any]:
        """Play an episode; the environment variable `variable` holds the key."""
        clients = importlib.import_module("verifiers.v1.clients")
        place = request["task"]
        self._read(place + 1)
        if not 0 <= place < len(self._tasks):
            raise PackageUnusable(f"task {place} does not exist: the task set has {len(self._tasks)}")
        await self._served()
        client = clients.EvalClientConfig(base_url=request["base_url"], api_key_var=variable)
        context = clients.ModelContext(model=request["model"], client=client)
        played = await self._environment.run_episode(self._tasks[place], context)
        errors = [*played.errors, *(trace.last_error for trace in played.traces if trace.has_error)]
        if errors:
            raise PackageUnusable(_first_line(getattr(errors[-1], "message", "") or str(errors[-1])))
        traces = [trace for trace in played.traces if trace.agent.trainable is not False]
        return {"reward": float(sum(trace.reward for trace in traces)), "metrics": _numbers(traces[0].metrics)}

    async def _served(self) -> None:
        """Open the resources that all episodes share, once; they stay open as long as the process."""
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(self._ready))
        await asyncio.shield(self._ready)

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Hold the shared resources in a task of their own, as their library requires."""
        try:
            async with self._environment.serving():
                ready.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    def _read(self, count: int) -> None:
        self._tasks += itertools.islice(self._waiting, max(0, count - len(self._tasks)))


def _run_null_harness_here() -> None:
    """Let the harness `null` run its program in this process, on the event loop of the episodes."""
    launch = importlib.import_module("verifiers.v1.harnesses.utils.launch")
    harness = importlib.import_module("verifiers.v1.harnesses.null.harness").NullHarness
    runtimes = importlib.import_module("verifiers.v1.runtimes")
    program = types.ModuleType("verifiers_chat_program")
    sys.modules[program.__name__] = program
    exec(compile(launch.CHAT_PROGRAM_SOURCE, "verifiers_chat_program.py", "exec"), program.__dict__)

    class Here:
        """A runtime that runs the program of the harness in this process, and is the given one for anything else."""

        def __init__(self, runtime: Any) -> None:
            self._runtime = runtime
            self._files: list[Path] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self._runtime, name)

        async def prepare_uv_script(self, *_: Any, **__: Any) -> list[str]:
            return []

        async def write(self, path: str, data: bytes) -> None:
            handle, place = tempfile.mkstemp(suffix=".json")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            self._files.append(Path(place))

        async def run_program(self, words: list[str], _: Any) -> Any:
            named = iter(self._files)
            words = [
                f"--initial-messages-file={next(named)}" if word.startswith("--initial-messages-file=") else word
                for word in words
            ]
            try:
                main = program.main()
                sys.argv = [program.__name__, *words]  # it reads them before it waits for anything
                await main
            except SystemExit as error:
                return runtimes.ProgramResult(exit_code=int(error.code or 0), stdout="", stderr="the call failed")
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                return runtimes.ProgramResult(exit_code=1, stdout="", stderr=text)
            return runtimes.ProgramResult(exit_code=0, stdout="", stderr="")

    whole = harness.launch

    async def setup(_: Any, __: Any) -> None:
        return None

    async def launch_here(self: Any, context: Any, trace: Any, runtime: Any, *rest: Any, **named: Any) -> Any:
        return await whole(self, context, trace, Here(runtime), *rest, **named)

    harness.setup, harness.launch = setup, launch_here


def _as_text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    contents = [message.get("content", "") for message in prompt]
    return "\n\n".join(content for content in contents if isinstance(content, str) and content)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items() if isinstance(value, int | float)}


def _first_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:SHOWN] if lines else "no reason is given"


def versions_here() -> dict[str, str]:
    """Return the versions of all installed packages by name; an environment may use others than that of its module."""
    return {each.name: each.version for each in importlib.metadata.distributions()}


class PolicyServer:
    """Reads requests in a thread, and answers them on an event loop."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        """Read requests from a file, and write the answers to another."""
        self._requests, self._answers = requests, answers
        self._environment: ProgramConversations | TaskSets | None = None
        self._playing: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answer requests until the process ends."""
        loop = asyncio.get_running_loop()
        requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def read() -> None:
            for line in self._requests:
                loop.call_soon_threadsafe(requests.put_nowait, json.loads(line))
            os._exit(0)

        threading.Thread(target=read, daemon=True).start()
        while True:
            request = await requests.get()
            number = int(request["number"])
            if request["do"] == "stop":
                if number in self._playing:
                    self._playing[number].cancel()
                continue
            self._playing[number] = asyncio.create_task(self._answer(number, request))

    async def _answer(self, number: int, request: dict[str, Any]) -> None:
        try:
            if request["do"] == "load":
                answer = self._load(request["id"], request["arguments"])
            elif self._environment is None:
                raise PackageUnusable("no environment is loaded")
            elif request["do"] == "list":
                answer = {"prompts": self._environment.prompts(request["split"], request["count"])}
            else:
                answer = await self._play(number, request)
        except asyncio.CancelledError:
            answer = {"error": "stopped"}
        except PackageUnusable as error:
            answer = {"error": str(error)}
        except (Exception, SystemExit) as error:
            answer = {"error": _first_line(f"{type(error).__name__}: {error}")}
        self._playing.pop(number, None)
        self._answers.write(json.dumps({"number": number, **answer}).encode() + b"\n")
        self._answers.flush()

    def _load(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            verifiers = importlib.import_module("verifiers")
        except ImportError as error:
            raise PackageUnusable(f"this interpreter has no package verifiers ({error})") from None
        if hasattr(verifiers, "load_environment"):
            self._environment = ProgramConversations(verifiers, name, arguments)
        else:
            self._environment = TaskSets(name, arguments)
        return {"versions": versions_here(), "tasks": self._environment.count()}

    async def _play(self, number: int, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._environment is not None
        variable = f"REWARDFLOW_EPISODE_{number}_API_KEY"
        os.environ[variable] = request["key"]
        try:
            return await self._environment.play(request, variable)
        finally:
            del os.environ[variable]


if __name__ == "__main__":
    sys.path[:1] = []  # the folder of this file holds no package of its own
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a package may read it, or wait for its lock
    os.dup2(2, 1)
    asyncio.run(PolicyServer(requests, answers).run())
