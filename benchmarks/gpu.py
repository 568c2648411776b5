"""`python -m benchmarks.gpu`: the learner's GRPO update on one CUDA device, unattended, in under 8 minutes.

Qwen3-0.6B and 1.7B shapes with random weights, rows of 4k and 16k tokens: groups of 8 completions that share their
prompt, one update each, GRPO without a KL term, AdamW, bf16 autocast over float32 weights. For each: tokens a second,
share of the device's measured bf16 matrix-product peak, peak memory. Where TRL is installed, its GRPOTrainer takes
the same update (its loss on the same tokens, no generation); otherwise there is no peer, which the table says.
Then, of each size, an engine in the same process: what a hand-over, sleep and waking take (`benchmarks.gpu_engine`).

Tokens are prompt + completion of every completion, P * G + C * G: what a learner without shared prompts computes, so
that the rates of both sides mean the same work done. The share of the peak counts only what must be computed
(`models.loop.flops`), each prompt once:

    6 * (entries of the matrices but the embedding and the head) * (P + G * C) a group
    + 6 * hidden * vocabulary * (G * C) + 12 * layers * heads * head_dim * (keys that all queries see)

Nothing of recomputation counts. It imports nothing above models/ and needs neither an orchestrator nor vLLM, without
which transformers is the engine.
A cell that does not fit into memory, or for which no time is left, is told as a row without figures.
`--device cpu --tiny` goes through every line in a minute on any machine.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from benchmarks.gpu_engine import engine_rows
from benchmarks.learners import grpo_update, learner_of, schedule, scored_of
from benchmarks.machine import describe
from benchmarks.materials import token_lists
from benchmarks.rows import Row, compare, table, write
from benchmarks.settings import has_trl
from models.loop.flops import groups_of, shapes_of, update_flops
from models.loop.peak import matmul_peak

RESULTS = Path(__file__).parent / "results"
GOALS = {4096: 0.35, 16384: 0.45}
"""Share of the measured peak that an update is to reach, by the tokens of a row."""


@dataclass(frozen=True)
class Size:
    """Published sizes of a Qwen3; embeddings tied."""

    name: str
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int = 151_936


SIZES = (
    Size("Qwen3-0.6B", 1024, 28, 16, 8, 128, 3072),
    Size("Qwen3-1.7B", 2048, 28, 16, 8, 128, 6144),
)
TINY = (Size("tiny", 64, 2, 2, 1, 32, 128, 512),)


@dataclass(frozen=True)
class Batch:
    """One update. A group is one row of its prompt and its completions."""

    row: int
    """Tokens of a row, P + G * C."""
    groups: int
    prompt: int
    completion: int
    group: int = 8

    @property
    def tokens(self) -> int:
        """As a learner without shared prompts counts them."""
        return self.groups * self.group * (self.prompt + self.completion)


BATCHES = (Batch(4096, 8, 512, 448), Batch(16384, 2, 2048, 1792))
TINY_BATCHES = (Batch(64, 2, 16, 6), Batch(128, 1, 32, 12))


def main() -> int:
    """Measure every cell that the time allows. Returns 0 where at least one was measured."""
    options = parser().parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device is to be had; --device cpu --tiny shows that everything runs", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    deadline = time.perf_counter() + options.minutes * 60
    device = torch.device(options.device)
    peak = matmul_peak(device, torch.bfloat16, 1.0)
    rows: list[Row] = []
    sizes, batches = (TINY, TINY_BATCHES) if options.tiny else (SIZES, BATCHES)
    machine = describe(measure=False) | {"bf16_peak_tflops": round(peak / 1e12, 2)}
    for size in sizes:
        for batch in batches:
            began = time.perf_counter()
            rows += cell(size, batch, device, peak, options.repeats, deadline)
            print(f"   {size.name} {batch.row}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            # After every cell, so that an interrupted run leaves what it had.
            write(options.out, "gpu", machine, rows, {"repeats": options.repeats, "tiny": options.tiny})
        rows += engine_cell(size, batches[0], device, options.repeats, deadline)
        write(options.out, "gpu", machine, rows, {"repeats": options.repeats, "tiny": options.tiny})
    print(f"{machine.get('gpu', machine['cpu'])}, measured bf16 peak {peak / 1e12:.1f} TFLOP/s")
    print(table(rows))
    return int(not any(row.ours for row in rows))


def cell(size: Size, batch: Batch, device: torch.device, peak: float, repeats: int, deadline: float) -> list[Row]:
    """The rows of one size and one row length."""
    label = f"{size.name}, rows of {batch.row:,}"
    work: list[float] = []
    ours, ours_memory, failure = timed(lambda: our_update(size, batch, device, work), device, repeats, deadline)
    if not ours:
        return [Row(f"{label}: update", 0.0, None, "tokens/s", None, None, False, reason=failure)]
    peer, peer_memory, why = [], 0.0, "TRL is not installed"
    if has_trl():
        peer, peer_memory, why = timed(lambda: their_update(size, batch, device), device, repeats, deadline)
    seconds = statistics.median(ours)
    details = {"parameters_flops_of_an_update": work[0], "seconds": seconds, "groups": batch.groups,
               "prompt": batch.prompt, "completion": batch.completion, "group": batch.group}  # fmt: skip
    against = "TRL GRPOTrainer, its loss and step"
    goal = GOALS.get(batch.row) if device.type == "cuda" else None
    return [
        compare(
            f"{label}: update", [batch.tokens / s for s in ours], [batch.tokens / s for s in peer] or None,
            "tokens/s", None, short="" if peer else why, against=against, details=details,
        ),
        compare(
            f"{label}: share of the bf16 peak", [work[0] / s / 1e12 for s in ours], [peak / 1e12], "TFLOP/s", goal,
            against="measured peak of a bf16 matrix product", wanted=f"{goal:.0%}" if goal else "",
            short=f"below {goal:.0%} of the measured peak" if goal else "",
        ),
        compare(
            f"{label}: peak memory", [ours_memory], [peer_memory] if peer else None, "GiB", None,
            smaller_is_better=True, short="" if peer else why, against=against,
        ),
    ]  # fmt: skip


def engine_cell(size: Size, batch: Batch, device: torch.device, repeats: int, deadline: float) -> list[Row]:
    """The rows of an engine beside the learner; one that tells why, where there are none."""
    clear(device)
    label = f"{size.name}, engine"
    if time.perf_counter() > deadline:
        return [Row(label, 0.0, None, "s", None, None, False, reason="no time was left")]
    try:
        return engine_rows(label, new_model(size, batch, device), batch.prompt, size.vocabulary, repeats)
    except Exception as error:  # as in `timed`
        first = (str(error).splitlines() or [""])[0]
        return [Row(label, 0.0, None, "s", None, None, False, reason=f"{type(error).__name__}: {first}"[:300])]


def timed(
    make: Callable[[], Callable[[], Any]], device: torch.device, repeats: int, deadline: float
) -> tuple[list[float], float, str]:
    """Seconds of each update after two for warming up, peak memory in GiB, and why there are none, if so."""
    clear(device)
    if time.perf_counter() > deadline:
        return [], 0.0, "no time was left"
    seconds: list[float] = []
    try:
        update = make()
        for turn in range(repeats + 2):
            if seconds and time.perf_counter() > deadline:
                break
            wait(device)
            started = time.perf_counter()
            update()
            wait(device)
            if turn >= 2:
                seconds.append(time.perf_counter() - started)
    except torch.OutOfMemoryError:
        return [], 0.0, "out of the device's memory"
    except Exception as error:  # unattended: one cell that fails leaves the others
        first = (str(error).splitlines() or [""])[0]
        return [], 0.0, f"does not run: {type(error).__name__}: {first}"[:300]
    held = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
    return seconds, held, ""


def our_update(size: Size, batch: Batch, device: torch.device, work: list[float]) -> Callable[[], Any]:
    """The loop's fit of one round; `work` takes the operations of it."""
    learner = learner_of(new_model(size, batch, device), torch.bfloat16)
    prompts = token_lists(batch.groups, batch.prompt, seed=1, vocabulary=size.vocabulary)
    flat = token_lists(batch.groups * batch.group, batch.completion, seed=2, vocabulary=size.vocabulary)
    completions = [flat[at : at + batch.group] for at in range(0, len(flat), batch.group)]
    scored = scored_of(prompts, completions, size.vocabulary)
    work.append(update_flops(shapes_of(learner.policy), groups_of(scored)))
    settings = schedule(token_budget=batch.row)
    return lambda: grpo_update(learner, scored, settings)


def their_update(size: Size, batch: Batch, device: torch.device) -> Callable[[], Any]:
    """TRL's own loss on the same tokens, a group at a time, and one step of the same optimiser."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from benchmarks.materials import word_tokenizer

    config = GRPOConfig(
        output_dir=f"{tempfile.gettempdir()}/rewardflow-bench-trl", per_device_train_batch_size=batch.group,
        num_generations=batch.group, max_completion_length=batch.completion, bf16=True, gradient_checkpointing=False,
        report_to="none", save_strategy="no", logging_strategy="no", use_cpu=device.type == "cpu",
        optim="adamw_torch_fused", learning_rate=1e-5, max_steps=1000, gradient_accumulation_steps=batch.groups,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=new_model(size, batch, device), args=config,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["w000001"]}),
        processing_class=word_tokenizer(min(size.vocabulary, 512)),
    )  # fmt: skip
    trainer.create_optimizer()
    trainer.model.train()
    rows = batch.groups * batch.group
    prompts = torch.tensor(token_lists(rows, batch.prompt, seed=1, vocabulary=size.vocabulary), device=device)
    completions = torch.tensor(token_lists(rows, batch.completion, seed=2, vocabulary=size.vocabulary), device=device)
    trainer.current_gradient_accumulation_steps = batch.groups

    def update() -> None:
        for start in range(0, rows, batch.group):
            part = slice(start, start + batch.group)
            inputs = {
                "prompt_ids": prompts[part],
                "prompt_mask": torch.ones_like(prompts[part]),
                "completion_ids": completions[part],
                "completion_mask": torch.ones_like(completions[part]),
                "advantages": torch.linspace(-1, 1, batch.group, device=device),
                "num_items_in_batch": torch.tensor(rows * batch.completion, device=device),
            }
            with trainer.compute_loss_context_manager():
                loss = trainer.compute_loss(trainer.model, inputs)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)

    return update


def new_model(size: Size, batch: Batch, device: torch.device) -> PreTrainedModel:
    """Random float32 weights in the published shape."""
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head_size,
        intermediate_size=size.feed_forward,
        max_position_embeddings=max(32_768, batch.row),
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        dtype="float32",
    )
    torch.manual_seed(0)
    with device:
        model: PreTrainedModel = Qwen3ForCausalLM(config)
    return model


def clear(device: torch.device) -> None:
    """Forget what the last cell held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--tiny", action="store_true", help="tiny shapes: only shows that everything runs")
    made.add_argument("--repeats", type=int, default=5, help="timed updates of each cell (default 5)")
    made.add_argument("--minutes", type=float, default=7.0, help="no new cell or update begins after (default 7)")
    made.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="JSON file (default %(default)s)")
    return made


if __name__ == "__main__":
    sys.exit(main())
