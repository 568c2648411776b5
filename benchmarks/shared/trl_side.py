"""TRL's trainers as the peer: its defaults, with the options that are faster on this machine switched on.

The same for all of them: fused AdamW, nothing logged, saved or reported, gradient checkpointing off (TRL's default is
on; off is faster). If more than one setting of TRL's own makes sense here (bf16 autocast or float32, one large
micro-batch or TRL's default of 8 rows accumulated), every one is tried and the fastest is measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.shared.alternate import Beat, Stepper

LEARNING_RATE = 1e-5
ROWS_BY_DEFAULT = 8
"""TRL's per_device_train_batch_size."""


def arguments(batch: int, *, bf16: bool, micro_batch: int | None = None) -> dict[str, Any]:
    """Return the settings of a Trainer for updates of `batch` rows."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    rows = min(micro_batch or batch, batch)
    return {
        "output_dir": os.path.join(tempfile.gettempdir(), "rewardflow-bench-trl"),  # nothing is saved in it
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": batch // rows,
        "max_steps": 100_000,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "optim": "adamw_torch_fused",
        "bf16": bf16,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "seed": 0,
    }


def candidates(
    batch: int, run: Callable[[dict[str, Any]], Callable[[Beat], Any]], *, quick: bool
) -> dict[str, Callable[[], Stepper]]:
    """Return the ways in which TRL could be run here, by name; with `quick` only the first."""
    ways = settings_tried(batch, quick=quick)
    return {name: partial(Stepper, run(given)) for name, given in ways.items()}


def settings_tried(batch: int, *, quick: bool) -> dict[str, dict[str, Any]]:
    """Return the settings of a Trainer that make sense here, by name; with `quick` only the first."""
    ways = {
        f"{'bf16' if bf16 else 'float32'}, {rows} rows at a time": arguments(batch, bf16=bf16, micro_batch=rows)
        for rows in sorted({batch, min(batch, ROWS_BY_DEFAULT)}, reverse=True)
        for bf16 in (True, False)
    }
    return dict(list(ways.items())[:1]) if quick else ways


def train(trainer: Any, beat: Beat) -> None:
    """Run `trainer.train()`, with a beat at the end of every step."""
    from transformers import TrainerCallback

    class Beats(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            beat()

    trainer.add_callback(Beats())
    trainer.train()
