"""Peak memory of one GRPO update: at a large vocabulary, and of a deep model.

    memory        vocabulary 151,936, 16 completions of 512; a model of width 64 and two layers, so that TRL fits into
                  an ordinary machine's memory: it compares the cost of the vocabulary
    deep_memory   width 512, 8 layers, 28M parameters, prompt 256, 16 completions of 256: the cost of the layers

Each side has its own process. The first update is a warm-up (it makes the optimiser's state); the second is measured:
the most memory that the process ever held during it, and the difference to the memory just before, with model and
optimiser loaded. The ratio is of the second number; both are reported. TRL runs with its defaults of 8 rows at a time,
so two micro-batches an update, bf16 and gradient checkpointing; ours without it, except for the deep model. Ours is the
update alone with the loop's default budget; TRL's is its whole step, whose generation holds far less.
"""

from __future__ import annotations

import ctypes
import gc
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.shared import trl_side
from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess
from benchmarks.shared.learners import grpo_update, learner_of, schedule, scored_of
from benchmarks.shared.materials import learner_precision, llama, save, texts, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings, has_trl
from models.policies.build import open_policy

SHORT = ""
"""Reason why the target is missed, if it is."""

GIB = 2**30


@dataclass(frozen=True)
class MemoryShape:
    """Sizes of one update."""

    vocabulary: int = 151_936
    prompt: int = 32
    completion: int = 512
    group: int = 16
    hidden: int = 64
    layers: int = 2
    recompute: bool = False
    """Whether our side reads its layers again for their backward pass, as TRL does."""
    at_least: float = 4.0
    wanted: str = "1/4 of it"

    @property
    def what(self) -> str:
        return (
            f"peak memory of a GRPO update above model and optimiser, hidden {self.hidden}, {self.layers} layers, "
            f"vocabulary {self.vocabulary:,}, {self.group * self.completion:,} completion tokens"
        )


SHAPES = {
    "memory": MemoryShape(),
    "deep_memory": MemoryShape(2048, 256, 256, 16, 512, 8, recompute=True, at_least=1 / 0.6, wanted="0.6 of it"),
}


class Peak:
    """The most memory that this process holds while a `with` block runs, sampled every few milliseconds, in bytes."""

    def __enter__(self) -> Peak:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # blocks that are free but kept would hide what is used again
        self._process = psutil.Process()
        self.before = self.most = self._held()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()
        self.most = max(self.most, self._held())

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            self.most = max(self.most, self._held())

    def _held(self) -> int:
        return int(self._process.memory_info().rss)


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row; one side after the other, never both in memory."""
    shape = SHAPES[name]
    if settings.quick:
        shape = replace(shape, vocabulary=2048, prompt=16, completion=32, group=4, hidden=64, layers=2)
    reports: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        model = llama(
            hidden=shape.hidden, layers=shape.layers, heads=max(2, shape.hidden // 64), vocabulary=shape.vocabulary
        )
        folder = save(model, word_tokenizer(shape.vocabulary), Path(place) / "model")
        del model
        for side, make in (("ours", our_stepper), ("peer", their_stepper)):
            if side == "peer" and not has_trl():
                continue
            apart = StepperProcess(partial(make, folder, shape))
            apart.advance(2)
            reports[side] = apart.stop()
    above = {side: [facts["most"] - facts["before"]] for side, facts in reports.items()}
    return [
        compare(
            shape.what,
            above["ours"],
            above.get("peer"),
            "GiB",
            shape.at_least,
            smaller_is_better=True,
            short=SHORT if has_trl() else "TRL is not installed",
            against="TRL GRPOTrainer",
            wanted=shape.wanted,
            details={side: {**facts, "absolute_peak_gib": facts["most"]} for side, facts in reports.items()},
        )
    ]


def our_stepper(folder: Path, shape: MemoryShape) -> Made:
    """Make two updates of ours, the second watched."""
    report: dict[str, Any] = {}

    def run(beat: Beat) -> None:
        policy, _ = open_policy(folder)
        learner = learner_of(policy, learner_precision(policy))
        report["autocast"] = str(learner.autocast)
        prompts = token_lists(1, shape.prompt, seed=1)
        completions = token_lists(shape.group, shape.completion, seed=2, vocabulary=shape.vocabulary)
        scored = scored_of(prompts, [completions], shape.vocabulary)
        settings = schedule(gradient_checkpointing=shape.recompute or "auto")
        grpo_update(learner, scored, settings)
        beat()
        with Peak() as peak:
            grpo_update(learner, scored, settings)
        report.update(before=peak.before / GIB, most=peak.most / GIB)
        beat()

    return Stepper(run), report


def their_stepper(folder: Path, shape: MemoryShape) -> Made:
    """Make two steps of TRL's, the second watched."""
    report: dict[str, Any] = {}

    def reward(prompts: Any, completions: Any, completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert all(len(ids) == shape.completion for ids in completion_ids), "a completion ended early"
        return [sum(token % 2 for token in ids) / len(ids) for ids in completion_ids]

    def run(beat: Beat) -> None:
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        arguments = trl_side.arguments(shape.group, bf16=True, micro_batch=trl_side.ROWS_BY_DEFAULT)
        arguments["gradient_checkpointing"] = True  # TRL's default: slower, and less memory
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        config = GRPOConfig(num_generations=shape.group, max_completion_length=shape.completion, **arguments)
        rows = Dataset.from_dict({"prompt": texts(tokenizer, token_lists(8, shape.prompt, seed=1))})
        trainer = GRPOTrainer(
            model=model, reward_funcs=reward, args=config, train_dataset=rows, processing_class=tokenizer
        )
        watched: list[Peak] = []

        def after() -> None:
            if watched:
                watched[0].__exit__()
                report.update(before=watched[0].before / GIB, most=watched[0].most / GIB)
            beat()
            time.sleep(0.1)
            watched.append(Peak().__enter__())

        trl_side.train(trainer, after)

    return Stepper(run), report
