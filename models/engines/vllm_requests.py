"""Requests that stay in vLLM's engine from call to call, and continue with new weights.

vLLM's asynchronous engine uses `pause_generation(mode="keep")`, weights, `resume_generation()`. Here, one thread steps
the engine, and loads weights between two steps. vLLM does not clear its prefix cache while requests read it, so
requests that start with other weights get another salt, which finds no old entries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


class Requests:
    """The requests in progress in a vLLM engine of this process.

    Args:
        engine: vLLM's `LLM`.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine.llm_engine
        self._under_way: set[str] = set()
        self._ended: dict[str, Any] = {}
        self._answer_calls = 0
        self._salt = 0

    @property
    def under_way(self) -> bool:
        """Whether a request is unfinished, or finished and not fetched."""
        return bool(self._under_way or self._ended)

    def add(self, requests: Mapping[str, tuple[Sequence[int], Any]]) -> None:
        """Start requests: name -> tokens of the prompt, and vLLM's sampling parameters."""
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        for name, (tokens, parameters) in requests.items():
            parameters.output_kind = RequestOutputKind.FINAL_ONLY
            prompt = tokens_input(list(tokens), cache_salt=f"weights {self._salt}")
            self._engine.add_request(name, prompt, parameters)
            self._under_way.add(name)

    def drop(self, names: Collection[str]) -> None:
        """Remove requests by name, in progress or finished."""
        if running := [name for name in names if name in self._under_way]:
            self._engine.abort_request(running)
            self._under_way -= set(running)
        for name in names:
            self._ended.pop(name, None)

    def step(self) -> None:
        """Generate one token for each request."""
        for output in self._engine.step():
            if output.finished and output.request_id in self._under_way:
                self._under_way.remove(output.request_id)
                self._ended[output.request_id] = output

    def fetch(self, prefix: str = "") -> dict[str, Any]:
        """Return vLLM's outputs of the finished requests whose names begin with `prefix`; each is returned once."""
        outputs = {name: output for name, output in self._ended.items() if name.startswith(prefix)}
        for name in outputs:
            del self._ended[name]
        return outputs

    def answers(self, prompts: Sequence[Sequence[int]], parameters: Sequence[Any]) -> list[Any]:
        """Run additional requests to their end, and return vLLM's outputs, [prompts]; those in progress continue."""
        self._answer_calls += 1
        prefix = f"scored {self._answer_calls} "
        names = [f"{prefix}{number}" for number in range(len(prompts))]
        self.add({name: pair for name, *pair in zip(names, prompts, parameters, strict=True)})  # type: ignore[misc]
        while not self._under_way.isdisjoint(names):
            self.step()
        outputs = self.fetch(prefix)
        return [outputs[name] for name in names]

    def between_weights(self) -> None:
        """Prepare for new weights: finish the batches in progress, and change the salt of the prefix cache."""
        core = self._engine.engine_core.engine_core
        if core.batch_queue is not None:  # a batch may be ahead of those that were fetched
            from vllm.v1.core.sched.interface import PauseState

            core.scheduler.set_pause_state(PauseState.PAUSED_ALL)
            try:
                while core.batch_queue:
                    self.step()
            finally:
                core.scheduler.set_pause_state(PauseState.UNPAUSED)
        self._salt += 1
