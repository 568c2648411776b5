"""Evaluation by vLLM: tokens a second of the pipeline's `evaluate`, against a bare `vllm.LLM.generate`.

The same prompts on both sides, 128 of 32 tokens: 16 sampled completions of 64 tokens each and one greedy one, all of
full length. Ours is what the task does with an open engine: generate, turn into text, verify, gather. The bare engine
does the two calls and nothing else, without log-probs. Both in processes of their own, on the same weights. The bare
engine is vLLM with its own defaults (compiled) or uncompiled, in float32 or bf16, whichever is fastest; starting an
engine is not timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.alternate import Apart, Beat, Made, Stepper, alternate, fastest
from benchmarks.materials import llama, save, texts, token_lists, word_tokenizer
from benchmarks.rows import Row, compare
from benchmarks.settings import Settings
from models.engine.engine import EngineSettings, Sampling, has_vllm, open_engine
from models.evaluation.evaluate import evaluate
from models.loop.rollout import Problem
from models.policy.folder import load_tokenizer
from models.text.encoding import Codec

AT_LEAST = 0.95
SHORT = ""
"""Why the line falls short, where it does."""


@dataclass(frozen=True)
class Shape:
    """One evaluation."""

    prompts: int = 128
    prompt: int = 32
    samples: int = 16
    completion: int = 64

    @property
    def tokens(self) -> int:
        """Completion tokens of one evaluation."""
        return self.prompts * (self.samples + 1) * self.completion


def measure(settings: Settings, name: str) -> list[Row]:
    """One row."""
    shape = Shape(prompts=4, prompt=8, samples=2, completion=8) if settings.quick else Shape()
    prompts = token_lists(shape.prompts, shape.prompt, seed=1)
    with tempfile.TemporaryDirectory() as place:
        folder = save(llama(), word_tokenizer(), Path(place) / "model")
        sides = {"ours": Apart(partial(our_stepper, folder, prompts, shape))}
        if has_vllm():
            sides["peer"] = Apart(partial(their_stepper, folder, prompts, shape, settings.quick))
        seconds = alternate(sides, warm=settings.warm, repeats=settings.samples)
        told = {side: stepper.stop() for side, stepper in sides.items()}
    rates = {side: [shape.tokens / taken for taken in values] for side, values in seconds.items()}
    return [
        compare(
            f"evaluation, {shape.prompts} prompts x {shape.samples} + 1 completions of {shape.completion}",
            rates["ours"],
            rates.get("peer"),
            "tokens/s",
            AT_LEAST,
            short=SHORT if has_vllm() else "vLLM is not installed",
            against="bare vllm.LLM.generate",
            wanted="95 %",
            details=told,
        )
    ]


def our_stepper(folder: Path, prompts: Sequence[Sequence[int]], shape: Shape) -> Made:
    """Made in our side's own process."""

    def run(beat: Beat) -> None:
        codec = Codec(load_tokenizer(folder))
        engine = open_engine(folder, EngineSettings(), longest=shape.prompt + shape.completion, end=codec.end, seed=0)
        problems = [
            Problem(str(number), text, answer="18", tokens=tuple(ids))
            for number, (ids, text) in enumerate(zip(prompts, texts(codec.tokenizer, prompts), strict=True))
        ]
        sampling = Sampling(max_tokens=shape.completion, samples=shape.samples)
        while True:
            found = evaluate(engine, codec, problems, sampling, 0, None)
            assert all(record.greedy.tokens == shape.completion for record in found), "a completion ended early"
            beat()

    return Stepper(run), {"engine": repr(EngineSettings())}


def their_stepper(folder: Path, prompts: Sequence[Sequence[int]], shape: Shape, quick: bool) -> Made:
    """Made in the bare engine's own process. Only one engine fits into a process, so each try of it is apart too."""
    ways: dict[str, Callable[[Beat], Any]] = {
        f"{dtype}, {'eager' if eager else 'compiled'}": partial(
            in_turn, partial(bare, folder, prompts, shape, dtype, eager)
        )
        for eager in ((True,) if quick else (False, True))
        for dtype in (("bfloat16",) if quick else ("bfloat16", "float32"))
    }
    return fastest(ways)


def in_turn(make: Callable[[], Made], beat: Beat) -> None:
    """A run that lives in a further process."""
    apart = Apart(make)
    try:
        while True:
            apart.advance(1)
            beat()
    finally:
        apart.stop()


def bare(folder: Path, prompts: Sequence[Sequence[int]], shape: Shape, dtype: str, eager: bool) -> Made:
    """vLLM and nothing else."""

    def run(beat: Beat) -> None:
        from models.engine.vllm_engine import prepare_environment

        prepare_environment()  # where vLLM runs on a CPU at all: in this process, a cache of 1 GiB, all cores
        from vllm import LLM, SamplingParams, TokensPrompt

        engine = LLM(
            model=str(folder), skip_tokenizer_init=True, dtype=dtype, enforce_eager=eager,
            max_model_len=shape.prompt + shape.completion, disable_log_stats=True, use_tqdm_on_load=False,
        )  # fmt: skip
        wanted = [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts]
        sampled = SamplingParams(n=shape.samples, max_tokens=shape.completion, detokenize=False, seed=None)
        greedy = SamplingParams(temperature=0.0, max_tokens=shape.completion, detokenize=False)
        while True:
            made = [engine.generate(wanted, how, use_tqdm=False) for how in (sampled, greedy)]
            tokens = sum(len(one.token_ids) for outputs in made for output in outputs for one in output.outputs)
            assert tokens == shape.tokens, "a completion ended early"
            beat()

    return Stepper(run), {}
