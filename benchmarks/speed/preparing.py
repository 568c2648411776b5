"""Cost of preparing a large data set: rows a second, and the memory of all its processes together.

A million problems of 31 words in JSON lines are prepared by the command that DVC runs, with all cores of the machine
and with one of them, in turns. The result is then tokenised as in a training, in batches and into a file: a rate of its
own, compared with that of the tokenizer alone. Memory is the share of each process (PSS, so that shared memory counts
once), summed and sampled while the command runs; its line is compared with the size of the rows as text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import psutil
import yaml

from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.datasets.row_table import open_rows
from models.text.encoding import Codec
from models.text.token_cache import CachedCodec
from models.text.tokenizer import TokenizerSettings, train_tokenizer

AT_LEAST = 60_000
"""Target of the rate, rows a second."""
AT_MOST = 2.0
"""Limit of the memory, GiB."""
WORDS = 30
VOCABULARY = 8192
HELD_ROWS = 40_000
"""Number of rows that the tokenizer alone is measured on, and trained on."""
GIB = 2**30


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure three rows: rows a second, all cores against one; of tokenising; peak memory against the file's size."""
    count = 40_000 if settings.quick else 1_000_000
    many: list[float] = []
    single: list[float] = []
    peaks: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        source = write_problems(Path(place) / "rows.jsonl", count)
        params = Path(place) / "params.yaml"
        params.write_text(yaml.safe_dump({"data": {"name": "mine", "path": [str(source)], "format": "problems"}}))
        cores = sorted(os.sched_getaffinity(0))
        for number in range(1 if settings.quick else min(3, settings.repeats)):
            seconds, peak = timed(params, Path(place) / f"all-{number}", cores)
            many.append(count / seconds)
            peaks.append(peak / GIB)
            single.append(count / timed(params, Path(place) / f"one-{number}", cores[:1])[0])
        size = source.stat().st_size / GIB
        files = [tokenised(Path(place) / f"all-{number}", Path(place) / "tokens") for number in range(len(many))]
    rate = compare(
        "rows a second through prepare", many, single, "rows/s", AT_LEAST / max(single),
        against="one core", wanted=f"at least {AT_LEAST:,} rows/s", short="below the mark",
        details={"rows": count, "cores": len(cores), "words": WORDS + 1},
    )  # fmt: skip
    memory = compare(
        "peak memory of prepare", peaks, [size], "GiB", size / AT_MOST, smaller_is_better=True,
        against="the file's text", wanted=f"at most {AT_MOST:g} GiB", short="above the mark", details={"rows": count},
    )  # fmt: skip
    encoding = compare(
        "rows a second tokenised", [ours for ours, _ in files], [alone for _, alone in files], "rows/s", None,
        against="the tokenizer alone", details={"rows": count, "vocabulary": VOCABULARY, "words": WORDS + 1},
    )  # fmt: skip
    return [rate, encoding, memory]


def write_problems(file: Path, count: int) -> Path:
    """Write a file of `count` problems with different prompts."""
    chance = Random(0)
    words = [f"word{number}" for number in range(5000)]
    with file.open("w") as out:
        for number in range(count):
            prompt = " ".join([*chance.choices(words, k=WORDS), str(number)])
            out.write(json.dumps({"prompt": prompt, "answer": str(number)}) + "\n")
    return file


def tokenised(prepared: Path, folder: Path) -> tuple[float, float]:
    """Measure rows a second from a prepared split to a file of tokens, and of the tokenizer with all in memory."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # as in a training
    table = open_rows(prepared, "problems", "train")
    (texts, *_) = table.column("prompt")
    held = [text for some in islice(table.column("prompt"), HELD_ROWS // len(texts)) for text in some]
    codec = CachedCodec(train_tokenizer(held, TokenizerSettings(vocabulary=VOCABULARY)), folder=folder / prepared.name)
    codec.prompts(texts)  # starts its threads
    began = time.perf_counter()
    rows = codec.rows_of_prompts(table.column("prompt"))
    ours = time.perf_counter() - began
    plain = Codec(codec.tokenizer)
    began = time.perf_counter()
    plain.prompts(held)
    return len(rows) / ours, len(held) / (time.perf_counter() - began)


def timed(params: Path, out: Path, cores: list[int]) -> tuple[float, float]:
    """Measure the seconds of one preparation on these cores, and the most memory that its processes held, in bytes."""
    command = [sys.executable, "-m", "models.datasets.prepare", str(params), "data", str(out)]
    began = time.perf_counter()
    peak = 0
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=partial(os.sched_setaffinity, 0, cores)
    ) as running:
        top = psutil.Process(running.pid)
        while running.poll() is None:
            peak = max(peak, held_by(top))
            time.sleep(0.2)
    if running.returncode:
        raise RuntimeError(f"prepare ended with {running.returncode}")
    return time.perf_counter() - began, peak


def held_by(top: psutil.Process) -> int:
    """Return the memory of a process and all below it, in bytes, shared memory counted once."""
    total = 0
    try:
        for process in [top, *top.children(recursive=True)]:
            total += process.memory_full_info().pss
    except psutil.NoSuchProcess:  # it ended while it was looked at
        pass
    return total
