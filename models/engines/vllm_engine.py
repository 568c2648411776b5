"""vLLM in the learner's own process: weights are synced in memory, without files."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.engine import (
    CompletionRequest,
    Engine,
    EngineSettings,
    Generated,
    TokenSampling,
    Versions,
    check_ids,
    engine_dtype,
    prompts_of,
)
from models.engines.vllm_images import MOST_IMAGES, image_prompts_of
from models.engines.vllm_requests import Requests
from models.engines.vocabulary import read_config
from models.policies.build import first_line
from models.text.end_ids import Ends, all_of

CACHE_BLOCK = 128
"""Tokens in a block of vLLM's cache on a CPU."""
CACHE_LEAST, CACHE_MOST = 1 << 26, 1 << 30
SERVED = "served "
"""Prefix of the names of requests that stay from call to call."""


def prepare_environment() -> None:
    """Set vLLM's environment variables, without changing those that the user has set.

    Engine and learner take turns on the same threads (`nobind`: the learner may use every core). The spin time of idle
    threads is set in models/__init__.py, because OpenMP reads it when torch is loaded.
    """
    for key, value in {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CONFIGURE_LOGGING": "1",
    }.items():
        os.environ.setdefault(key, value)


def load_vllm() -> Any:
    """Import vLLM in a thread of its own, and return its class `LLM`.

    An exception of that import is stored by the imported modules, and with it every frame below. The engine under
    construction, and the learner of the caller, would otherwise stay in memory as long as the process.
    """

    def load() -> Any:
        from vllm import LLM

        return LLM

    with ThreadPoolExecutor(1, "vllm-import") as thread:
        return thread.submit(load).result()


@contextmanager
def threads_settable() -> Iterator[None]:
    """Restore `torch.set_num_threads` on exit: vLLM's CPU worker replaces it with a function that does nothing."""
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads


class OwnModules:
    """A replacement of the module `sys` that lists only the modules of vLLM."""

    @property
    def modules(self) -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}


@contextmanager
def own_modules_searched() -> Iterator[None]:
    """Restrict vLLM's search for its kernels to its own modules.

    On a CPU without Triton, vLLM looks for its kernels among the names of every imported module. The search raises at
    a proxy without an object, such as Flask's `current_app`, so any process that has imported Flask could start no
    engine.
    """
    dispatcher: Any = import_module("vllm.triton_utils.dispatcher")
    dispatcher.sys, before = OwnModules(), dispatcher.sys
    try:
        yield
    finally:
        dispatcher.sys = before


def lighten_start(architectures: Sequence[str]) -> None:
    """Avoid two costs of vLLM's first start on a CPU, which take 26 processor seconds.

    vLLM imports a model's class in a process of its own, so that CUDA is not initialised in this one, and compiles the
    counting of a drawn token's rank with a C++ compiler although the model itself is not compiled. Here the class is
    imported in this process, and the count runs as plain torch operations.

    Args:
        architectures: architectures of the model, as its config names them.
    """
    from vllm.model_executor.models import ModelRegistry

    sampler: Any = import_module("vllm.v1.sample.sampler")
    for name in architectures:
        known = ModelRegistry.models.get(name)
        if known is not None:
            ModelRegistry.register_model(name, known.load_model_cls())
    compiled = sampler.batched_count_greater_than
    sampler.batched_count_greater_than = getattr(compiled, "_torchdynamo_orig_callable", compiled)


def cache_bytes(config: Any, blocks: int, dtype: torch.dtype) -> int:
    """Return the size of vLLM's cache of `blocks` blocks on a CPU, in bytes, from CACHE_LEAST to CACHE_MOST.

    All of it is written at the start: a GiB takes a second and is not available to the learner. If unset, vLLM takes
    most of the memory. VLLM_CPU_KVCACHE_SPACE takes precedence over this value.
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    block: int = CACHE_BLOCK * 2 * config.num_hidden_layers * heads * width * dtype.itemsize
    return max(CACHE_LEAST, min(blocks * block, CACHE_MOST))


class VllmEngine(Engine):
    """An in-process vLLM engine on token ids; see `models.engines.engine.Engine`.

    Raises:
        UserError: `folder` is not a model folder, or vLLM cannot serve it.
    """

    def __init__(
        self,
        folder: Path,
        settings: EngineSettings,
        *,
        longest: int,
        end: Ends,
        seed: int,
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
        ways: int = 1,
    ) -> None:
        prepare_environment()
        config = read_config(folder, trust_remote_code=trust_remote_code)
        self.images = image_prompts_of(folder)
        self.vocabulary = int(config.vocab_size)
        self.longest = longest
        self.ends = all_of(end)
        loaded = load_vllm()

        from models.engines.vllm_norms import norm_options

        cuda = torch.cuda.is_available()
        self.dtype = engine_dtype(settings, dtype)
        options: dict[str, Any] = {"gpu_memory_utilization": settings.memory_share}
        if not cuda:
            blocks = settings.max_sequences * (longest // CACHE_BLOCK + 1)
            options = {"kv_cache_memory_bytes": cache_bytes(config, blocks, self.dtype)}
        self.sleeps, self.asleep = cuda and settings.sleeps, False  # vLLM supports sleep on a GPU only
        if self.sleeps:
            options["enable_sleep_mode"] = True
        options["dtype"] = str(self.dtype).removeprefix("torch.")
        options["skip_tokenizer_init"] = self.images is None
        if self.images is not None:
            options["limit_mm_per_prompt"] = {"image": MOST_IMAGES}
            options["mm_processor_kwargs"] = self.images.processor_options or None
        compiled = cuda if settings.compile == "auto" else settings.compile
        if ways > 1:
            options |= {"tensor_parallel_size": ways, "distributed_executor_backend": "mp"}
        elif not compiled:
            options |= norm_options()  # registered in this process only
            if not cuda:
                lighten_start(getattr(config, "architectures", None) or ())
        try:
            with threads_settable(), own_modules_searched():
                self.engine = loaded(
                    model=str(folder),
                    trust_remote_code=trust_remote_code,
                    max_model_len=longest,
                    max_num_seqs=settings.max_sequences,
                    max_num_batched_tokens=max(longest, 8192),
                    enforce_eager=not compiled,
                    enable_chunked_prefill=cuda,  # a CPU's generator cannot be reset if a prompt is half read
                    enable_prefix_caching=True,
                    logprobs_mode="processed_logprobs",
                    seed=seed,
                    disable_log_stats=True,
                    use_tqdm_on_load=False,
                    **options,
                )
        except (ValueError, RuntimeError, AssertionError, LookupError, OSError) as error:
            raise UserError(f"{folder}: vLLM cannot serve this model ({first_line(error)})") from error
        self.requests, self.drawing = Requests(self.engine), TokenSampling()
        core = self.engine.llm_engine.engine_core
        # if vLLM runs in a process of its own, by an environment variable, this process cannot step it
        serves = hasattr(core, "engine_core") and self.images is None
        self.room = settings.max_sequences if serves else 0
        self.engine.llm_engine.set_weight_version(str(self.version))

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`. A prompt of several requests is read once: its prefix is cached."""
        self._check(prompts_of(requests))
        outputs = self._answers(
            [request.prompt for request in requests], [self._parameters(request, drawing) for request in requests]
        )
        return [_generated(output.outputs[0]) for output in outputs]

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        """See `Engine.serve`."""
        self._check(prompts_of(list(requests.values())))
        if not self.requests.under_way:
            self.drawing = drawing
        if self.drawing != drawing:
            raise ValueError("completions are under way that are drawn in another way")
        self.requests.add(
            {
                f"{SERVED}{number}": (request.prompt, self._parameters(request, drawing))
                for number, request in requests.items()
            }
        )
        self.requests.drop([f"{SERVED}{number}" for number in dropped])
        for _ in range(steps):
            if not self.requests.under_way:
                break
            self.requests.step()
        return {
            int(name.removeprefix(SERVED)): replace(
                _generated(output.outputs[0]), versions=_versions(output.outputs[0])
            )
            for name, output in self.requests.fetch(SERVED).items()
        }

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        from vllm import SamplingParams

        joined = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
        self._check(joined)
        parameters = [
            SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, flat_logprobs=True, detokenize=False)
            for _ in joined
        ]
        scores = []
        for prompt, ids, output in zip(prompts, joined, self._answers(joined, parameters), strict=True):
            table: Any = output.prompt_logprobs  # flat: one value a position, none for the first
            scores.append([float(table.logprobs[table.start_indices[at]]) for at in range(len(prompt), len(ids))])
        return scores

    def _check(self, rows: Sequence[Sequence[int]]) -> None:
        """Check prompts; see `check_ids`."""
        check_ids(rows, self.vocabulary, self.longest, images=self.images is not None)

    def _parameters(self, request: CompletionRequest, drawing: TokenSampling) -> Any:
        """Return vLLM's sampling parameters of a request."""
        from vllm import SamplingParams

        return SamplingParams(
            temperature=drawing.temperature,
            top_p=drawing.top_p,
            top_k=drawing.top_k or -1,
            max_tokens=request.max_tokens,
            seed=request.seed,
            logprobs=0 if drawing.log_probs else None,
            flat_logprobs=True,
            detokenize=False,
            stop_token_ids=[*self.ends, *request.stops],
            ignore_eos=True,  # the stop tokens above include those of the folder's config where they count
        )

    def _answers(self, prompts: Sequence[Sequence[int]], parameters: Sequence[Any]) -> list[Any]:
        """Return vLLM's outputs, [prompts].

        vLLM's own loop ends when no request is left, so it is only used if no other request is in progress.
        """
        from vllm import TokensPrompt

        if self.requests.under_way:
            return self.requests.answers(prompts, parameters)
        wanted: list[Any] = [
            TokensPrompt(prompt_token_ids=list(ids)) if self.images is None else self.images.prompt(ids)
            for ids in prompts
        ]
        outputs: list[Any] = self.engine.generate(wanted, parameters, use_tqdm=False)
        return outputs

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. Weights of another dtype are rounded to the engine's.

        Raises:
            RuntimeError: vLLM kept its prefix cache, which holds values of the old weights.
        """
        serving = self.requests.under_way
        if serving:
            self.requests.between_weights()
        if self.asleep:
            self.engine.wake_up(tags=["weights"])
        self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights)})
        if self.asleep:
            self.engine.wake_up(tags=["kv_cache"])  # last: the memory of the old weights is free only now
            self.asleep = False
        if not serving and not self.engine.reset_prefix_cache():
            raise RuntimeError("vLLM did not forget the prefixes of the old weights")
        if self.images is not None:
            self.engine.llm_engine.reset_encoder_cache()  # outputs of the old vision tower
        self.engine.llm_engine.set_weight_version(str(version))
        self.version = version

    def sleep(self) -> None:
        """See `Engine.sleep`. Level 2: neither weights nor cache are kept in the processor's memory."""
        if self.sleeps and not self.asleep:
            self.engine.sleep(level=2)
            self.asleep = True

    def close(self) -> None:
        """See `Engine.close`. The core is shut down explicitly, not at the release of the last reference."""
        self.engine.llm_engine.engine_core.shutdown()
        del self.engine, self.requests
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _generated(completion: Any) -> Generated:
    """Return vLLM's completion as `Generated`. Its log-probs are float32 values as Python floats: float32 is exact."""
    tokens, table = tuple(completion.token_ids), completion.logprobs
    log_probs = None if table is None else torch.tensor(table.logprobs, dtype=torch.float32)
    assert log_probs is None or len(tokens) == len(log_probs), "one log-prob a token"
    return Generated(tokens, log_probs, finished=completion.finish_reason == "stop")


def _versions(completion: Any) -> Versions:
    """Return the weights that drew a completion's tokens: vLLM labels each with its weight version at that time."""
    return tuple((span.start, int(span.version)) for span in completion.weight_versions)
