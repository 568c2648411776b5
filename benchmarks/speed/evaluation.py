"""Evaluation by vLLM: tokens a second of the pipeline's `evaluate`, against a bare `vllm.LLM.generate`.

The same prompts on both sides, 64 of 32 tokens: 8 sampled completions of 64 tokens each and one greedy one, all of full
length. Our side does the work of the task with an open engine: generate, turn into text, verify, gather. The bare
engine does only the two calls, without log-probs. Both in processes of their own, on the same weights, each in the
fastest of four ways that both can take: compiled or not, float32 or bf16. Starting an engine is not timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess, alternate, fastest
from benchmarks.shared.materials import llama, save, texts, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.engines.engine import EngineSettings, Sampling, has_vllm
from models.engines.open_engine import open_engine
from models.evaluation.evaluate import evaluate
from models.learner.precision import Precision
from models.method.problem import Problem
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer

AT_LEAST = 0.95
PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float32")
SHORT = ""
"""Reason why the target is missed, if it is."""


@dataclass(frozen=True)
class EvaluationShape:
    """Sizes of one evaluation."""

    prompts: int = 64
    prompt: int = 32
    samples: int = 8
    completion: int = 64

    @property
    def tokens(self) -> int:
        """Completion tokens of one evaluation."""
        return self.prompts * (self.samples + 1) * self.completion


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row."""
    shape = EvaluationShape(prompts=4, prompt=8, samples=2, completion=8) if settings.quick else EvaluationShape()
    prompts = token_lists(shape.prompts, shape.prompt, seed=1)
    with tempfile.TemporaryDirectory() as place:
        folder = save(llama(), word_tokenizer(), Path(place) / "model")
        makers = {"ours": our_stepper} | ({"peer": bare} if has_vllm() else {})
        sides, reports = {}, {}
        for side, maker in makers.items():
            ways = {
                f"{precision}, {'compiled' if compiled else 'eager'}": partial(
                    StepperProcess, partial(maker, folder, prompts, shape, precision, compiled)
                )
                for compiled in ((False,) if settings.quick else (True, False))
                for precision in PRECISIONS[: 1 if settings.quick else None]
            }
            sides[side], reports[side] = fastest(ways)
        seconds = alternate(sides, warm=settings.warm, repeats=settings.samples)
        for stepper in sides.values():
            stepper.stop()
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
            details=reports,
        )
    ]


def our_stepper(
    folder: Path, prompts: Sequence[Sequence[int]], shape: EvaluationShape, precision: Precision, compiled: bool
) -> Made:
    """Make the stepper in our side's own process."""

    def run(beat: Beat) -> None:
        codec = Codec(load_tokenizer(folder))
        settings = EngineSettings(precision=precision, compile=compiled)
        engine = open_engine(folder, settings, longest=shape.prompt + shape.completion, end=codec.end, seed=0)
        problems = [
            Problem(str(number), text, answer="18", tokens=tuple(ids))
            for number, (ids, text) in enumerate(zip(prompts, texts(codec.tokenizer, prompts), strict=True))
        ]
        sampling = Sampling(max_tokens=shape.completion, samples=shape.samples)
        while True:
            records = evaluate(engine, codec, problems, sampling, 0, None)
            assert all(record.greedy.tokens == shape.completion for record in records), "a completion ended early"
            beat()

    return Stepper(run), {}


def bare(
    folder: Path, prompts: Sequence[Sequence[int]], shape: EvaluationShape, precision: Precision, compiled: bool
) -> Made:
    """Make a stepper of vLLM without the pipeline."""

    def run(beat: Beat) -> None:
        from models.engines.vllm_engine import prepare_environment

        prepare_environment()  # where vLLM runs on a CPU at all: in this process, on all cores
        from vllm import LLM, SamplingParams, TokensPrompt

        engine = LLM(
            model=str(folder), skip_tokenizer_init=True, dtype=precision, enforce_eager=not compiled,
            max_model_len=shape.prompt + shape.completion, disable_log_stats=True, use_tqdm_on_load=False,
            kv_cache_memory_bytes=1 << 30,
        )  # fmt: skip
        wanted = [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts]
        sampled = SamplingParams(n=shape.samples, max_tokens=shape.completion, detokenize=False, seed=None)
        greedy = SamplingParams(temperature=0.0, max_tokens=shape.completion, detokenize=False)
        while True:
            made = [engine.generate(wanted, how, use_tqdm=False) for how in (sampled, greedy)]
            tokens = sum(
                len(completion.token_ids) for outputs in made for output in outputs for completion in output.outputs
            )
            assert tokens == shape.tokens, "a completion ended early"
            beat()

    return Stepper(run), {}
