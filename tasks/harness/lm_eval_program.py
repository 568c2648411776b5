"""Program that runs tasks of lm-evaluation-harness, in the interpreter that has it, for `tasks.harness.running`.

    INTERPRETER tasks/harness/lm_eval_program.py < REQUEST

The request is one JSON object (`tasks.harness.running`). The samples are written as lm-eval writes them with
`--log_samples`, into the folder `output`. The file `outcome.json` there has the file of each task and the metrics
that are better when lower, or the field `error` with one line for the user.

The model is lm-eval's own client for local servers, with two changes: texts become tokens as in lm-eval's model `hf`,
and a request for log-probs names the length of each context. Connections to other machines are refused.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

OUTCOME = "outcome.json"
SHOWN = 300
"""Number of characters of an error's text that is passed on."""
OFFLINE = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "NotLocal", "DatasetNotFoundError")
"""Names of errors for data that are not on this machine."""
HINT = (
    "its data are not on this machine; name a task file with dataset_path: json and data_files in include_path, or "
    "fill the cache of the hub before"
)


class NotUsable(Exception):
    """Error whose text is meant for the user."""


class NotLocal(ConnectionError):
    """A connection to another machine."""


def main() -> int:
    """Run the request on standard input. Returns the exit status."""
    request = json.loads(sys.stdin.read())
    output = Path(request["output"])
    _refuse_other_machines()
    try:
        outcome = evaluate(request, output)
    except NotUsable as error:
        outcome = {"error": str(error)}
    except Exception as error:
        outcome = {"error": _reason(error)}
        _print_traceback()
    (output / OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")
    return 1 if "error" in outcome else 0


def evaluate(request: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Evaluate the tasks of a request, write their samples and return the outcome.

    Raises:
        NotUsable: a task is unknown, or its data are not on this machine.
    """
    try:
        harness = importlib.import_module("lm_eval")
        managers = importlib.import_module("lm_eval.tasks")
        completions = importlib.import_module("lm_eval.models.openai_completions")
    except ImportError as error:
        raise NotUsable(f"{sys.executable} cannot import lm-eval ({error}); install lm-eval.lock there") from None
    manager = managers.TaskManager(include_path=request["include_path"])
    for task in request["tasks"]:
        _load(manager, task, request)
    model = _model_class(completions.LocalCompletionsAPI)(
        model=request["folder"],
        base_url=f"{request['base_url']}/completions",
        header={"Authorization": f"Bearer {request['key']}"},
        tokenizer=request["folder"],
        tokenizer_backend="huggingface",
        trust_remote_code=request["trust_remote_code"],
        max_length=request["longest"] + 1,  # the client keeps one token for itself
        batch_size=request["batch"],
        max_retries=1,
        seed=request["seed"],
        timeout=86_400,
    )
    seeds = {f"{kind}_seed": request["seed"] for kind in ("random", "numpy_random", "torch_random", "fewshot_random")}
    results = harness.simple_evaluate(
        model=model,
        tasks=list(request["tasks"]),
        num_fewshot=request["few_shot"],
        limit=request["limit"],
        gen_kwargs=dict(request["generation"]) or None,
        apply_chat_template=request["chat"],
        fewshot_as_multiturn=request["chat"],
        system_instruction=request["system"],
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=True,
        confirm_run_unsafe_code=request["unsafe_code"],
        **seeds,
    )
    samples = results.pop("samples")
    files = {}
    for number, (task, rows) in enumerate(samples.items()):
        files[task] = f"samples_{number}.jsonl"
        with (output / files[task]).open("w", encoding="utf-8") as written:
            written.writelines(json.dumps(_sample(row), default=str, ensure_ascii=False) + "\n" for row in rows)
    lower = [
        [task, metric]
        for task, metrics in results["higher_is_better"].items()
        for metric, higher in metrics.items()
        if higher is False
    ]
    return {"files": files, "lower": lower}


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample in the form that lm-eval writes with `--log_samples`."""
    requests = {
        f"gen_args_{number}": {f"arg_{place}": value for place, value in enumerate(request)}
        for number, request in enumerate(row["arguments"])
    }
    return {**row, "arguments": requests, "target": str(row["target"])}


def _load(manager: Any, task: str, request: Mapping[str, Any]) -> None:
    known = manager.match_tasks([task])
    if not known:
        where = f" and in {request['include_path']}" if request["include_path"] else ""
        raise NotUsable(f"task {task}: lm-eval does not know it; its own tasks were searched{where}")
    try:
        manager.load([task])
    except Exception as error:
        names = [type(each).__name__ for each in _chain(error)]
        if any(name in OFFLINE for name in names):
            _print_traceback()
            raise NotUsable(f"task {task} wants the network ({_reason(error)}): {HINT}") from None
        raise NotUsable(f"task {task} cannot be loaded ({_reason(error)})") from error


def _model_class(base: Any) -> Any:
    class Model(base):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.add_bos_token = None  # the tokenizer decides, as in the model `hf`
            self._context_lengths: Sequence[int] = ()

        @property
        def tokenizer_name(self) -> str:
            return str(self.tokenizer.name_or_path)

        def tok_encode(
            self, string: Any, left_truncate_len: int | None = None, add_special_tokens: bool | None = None, **_: Any
        ) -> Any:
            if not isinstance(string, str):
                return [self.tok_encode(each, left_truncate_len, add_special_tokens) for each in string]
            if add_special_tokens is None:
                begins = self.tokenizer.decode(self.prefix_token_id)
                given = {"add_special_tokens": False} if begins and string.startswith(begins) else {}
            else:
                given = {"add_special_tokens": add_special_tokens}
            ids = self.tokenizer.encode(string, **given)
            return ids[-left_truncate_len:] if left_truncate_len else ids

        def batch_loglikelihood_requests(self, chunks: Any) -> Any:
            inputs, lengths, keys = super().batch_loglikelihood_requests(chunks)
            self._context_lengths = list(lengths)
            return inputs, lengths, keys

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> Any:
            for request in requests:
                most = int(request.args[1].get("max_gen_toks", self._max_gen_toks))
                if most >= self.max_length:
                    raise NotUsable(
                        f"task {request.task_name}: answers of {most} tokens exceed the room of {self.max_length}; "
                        "set generation: {max_gen_toks: ...}, or longest"
                    )
            return super().generate_until(requests, disable_tqdm=disable_tqdm)

        def _create_payload(self, messages: Any, generate: bool = False, **settings: Any) -> Any:
            payload = super()._create_payload(messages, generate=generate, **settings)
            return payload if generate else {**payload, "context_lengths": self._context_lengths}

    return Model


def _refuse_other_machines() -> None:
    """Refuse connections of this process to other machines; data must be local."""
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def local(host: Any) -> bool:
        text = host.decode() if isinstance(host, bytes) else host
        return text is None or text in ("localhost", "::1", "") or str(text).startswith("127.")

    def guarded_look_up(host: Any, *arguments: Any, **named: Any) -> Any:
        if not local(host):
            raise NotLocal(f"a connection to {host} was refused")
        return look_up(host, *arguments, **named)

    def guarded_connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not local(address[0]):
            raise NotLocal(f"a connection to {address[0]} was refused")
        return connect(self, address)

    socket.getaddrinfo = guarded_look_up
    socket.socket.connect = guarded_connect  # type: ignore[method-assign, assignment]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
