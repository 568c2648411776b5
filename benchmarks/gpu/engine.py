"""Cost of an engine in the learner's process at a hand-over, and the memory that it frees while the learner fits.

Measured for one size of `benchmarks.gpu`: GB of weights handed over a second; seconds to the first token of a prompt
right after; seconds to sleep, and to receive weights asleep; GiB of the device that sleep frees (CUDA alone). The
engine is vLLM if it is installed, else transformers, as named in the label. The rows have no peer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from benchmarks.gpu.shapes import Packed, Size, label_of, new_model
from benchmarks.gpu.timing import NO_TIME, Terms, clear, reason_of, seconds_of
from benchmarks.shared.materials import token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare, unmeasured
from models.engines.engine import Engine, EngineSettings, Sampling, has_vllm
from models.engines.open_engine import open_engine
from models.policies.folder import save_model_folder

FIRST_TOKEN = Sampling(max_tokens=1, temperature=0.0)
GIB = 2**30
NOBODY = "no peer is set"


def engine_cell(size: Size, batch: Packed, terms: Terms) -> list[Row]:
    """Measure the rows of an engine next to the learner; one row with the reason if there are none."""
    label = label_of(size, "engine")
    try:
        clear(terms.device)
        if terms.late:
            return [unmeasured(label, "s", NO_TIME)]
        model = new_model(size, batch.longest, terms.device)
        return engine_rows(label, model, batch.prompt, size.vocabulary, terms.repeats)
    except Exception as error:  # unattended: one that fails leaves the others
        return [unmeasured(label, "s", reason_of(error))]


def engine_rows(label: str, model: PreTrainedModel, prompt: int, vocabulary: int, repeats: int) -> list[Row]:
    """Measure the rows of one model, whose weights are handed over.

    Args:
        label: label of the size, which each row begins with.
        prompt: tokens of the prompt that is answered.
        repeats: samples of each row.
    """
    name = "vllm" if has_vllm() else "transformers"
    settings = EngineSettings(name="vllm" if name == "vllm" else "transformers", sleep=True, max_sequences=64)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save_model_folder(model, word_tokenizer(min(vocabulary, 512)), folder)
        engine = open_engine(
            folder, settings, longest=prompt + 2, end=1, seed=0, dtype=torch.bfloat16 if _cuda() else None
        )
        try:
            samples = [_round(engine, model, token_lists(1, prompt, seed=turn, vocabulary=vocabulary))
                       for turn in range(repeats + 1)][1:]  # fmt: skip
        finally:
            engine.close()
    handed = sum(value.numel() for value in model.parameters()) * engine.dtype.itemsize / 1e9
    awake, first, asleep, waking, given_back = zip(*samples, strict=True)
    rows = [
        ("hand-over", [handed / seconds for seconds in awake], "GB/s", False),
        ("first token after a hand-over", first, "s", True),
    ]
    if _cuda() or name == "transformers":  # vLLM sleeps on a GPU alone
        rows += [("going to sleep", asleep, "s", True), ("hand-over to an engine asleep", waking, "s", True)]
    if _cuda():
        rows.append(("memory that sleep gives back", given_back, "GiB", False))
    return [
        compare(f"{label}, {name}: {what}", values, None, unit, None, smaller_is_better=smaller, short=NOBODY)
        for what, values, unit, smaller in rows
    ]


def _round(
    engine: Engine, model: PreTrainedModel, prompts: list[list[int]]
) -> tuple[float, float, float, float, float]:
    """Measure the seconds of a hand-over, a first token, going to sleep and waking, and the GiB freed by sleep."""
    weights = dict(model.state_dict())
    awake = _seconds(lambda: engine.load(weights.items()))
    first = _seconds(lambda: engine.generate(prompts, FIRST_TOKEN, seed=0))
    before = _free()
    asleep = _seconds(engine.sleep)
    given_back = _free() - before
    return awake, first, asleep, _seconds(lambda: engine.load(weights.items())), given_back


def _seconds(call: Callable[[], object]) -> float:
    return seconds_of(call, torch.device("cuda" if _cuda() else "cpu"))


def _free() -> float:
    """Return the free memory of the device, GiB."""
    return torch.cuda.mem_get_info()[0] / GIB if _cuda() else 0.0


def _cuda() -> bool:
    return torch.cuda.is_available()
