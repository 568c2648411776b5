"""Progress bars at a terminal, or a line every few seconds if the output is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tasks.runner import interrupt

Advance = Callable[[int, dict[str, float]], None]


@contextmanager
def progress(title: str, total: int, shown: tuple[str, ...], every_seconds: float = 20.0) -> Iterator[Advance]:
    """Show a bar of `total` steps; yield a function of the steps done and the metrics, which shows those in `shown`."""
    bar = _bar(title, total)
    last = time.monotonic()

    def advance(done: int, metrics: dict[str, float]) -> None:
        nonlocal last
        interrupt.raise_again()
        text = ", ".join(f"{key.rsplit('/', 1)[-1]} {metrics[key]:.3f}" for key in shown if key in metrics)
        bar.set_postfix_str(text)
        bar.update(done - bar.n)
        if bar.disable:
            bar.n = done
            if time.monotonic() - last >= every_seconds:
                last = time.monotonic()
                print(f"  {title}: {done}/{total}  {text}", flush=True)

    try:
        yield advance
    finally:
        bar.close()


@contextmanager
def stages(title: str, names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Show a bar of named stages, for work without other progress. Yield a function to call as each stage begins."""
    bar = _bar(title, len(names))

    def begin(name: str) -> None:
        interrupt.raise_again()
        bar.set_postfix_str(name, refresh=False)
        bar.update(names.index(name) - bar.n)
        bar.refresh()

    try:
        yield begin
    finally:
        bar.close()


@contextmanager
def bytes_shown(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a bar of `total` bytes. Yield a function to call with the number of bytes just done."""
    bar = _bar(title, total, unit="B", unit_scale=True)
    try:
        yield bar.update
    finally:
        bar.close()


def _bar(title: str, total: int, **options: Any) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, desc=title, disable=not sys.stderr.isatty(), leave=False, dynamic_ncols=True, **options)
