"""Wall time of a round by stage, and the speed of each stage.

    seconds/generate   the engine generating; with `schedule.async` partly in parallel to `learn`
    seconds/score      rewards and selection
    seconds/learn      metrics of the completions, advantage, forward, backward, optimiser
    seconds/hand_over  weights to the engine, the canary that checks them, the reference
    seconds/log        samples, the alarm and logging (a round's numbers are logged in the next round's time)
    seconds/checkpoint copying the state of the round before, which is then written in the background
    seconds/hidden     with `schedule.async`: generation that cost no time, as the learner worked in parallel
    seconds/round      all of it: the stages together less the hidden time

Tokens a second: `speed/generate` of completions sampled, `speed/score` of completions scored, `speed/learn` of prompts
(once each) and completions in every pass, `speed/hand_over`, `speed/log` and `speed/round` of the round's completions.
`speed/learn_gflops` is the arithmetic that the updates need (models.training.flops), a second, in 10^9 operations;
`speed/peak_share` its share of the fastest matrix product measured on this machine (models.training.peak).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch

STAGES = ("generate", "score", "learn", "hand_over", "log", "checkpoint")
"""Stages of a round, in their order."""


class Clock:
    """Timer of a round's stages. On a GPU (`device`), a stage ends when its kernels have ended."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = self._last = time.perf_counter()
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._hidden: float | None = None

    def lap(self, stage: str) -> None:
        """End the stage `stage` now; the times of a stage that occurs twice in a round are added."""
        self._seconds[stage] += self._since_last()

    def waited(self, worked: float) -> None:
        """End a wait for generation in another thread, which took `worked` seconds there."""
        waiting = self._since_last()
        self._seconds["generate"] += worked
        self._hidden = (self._hidden or 0.0) + worked - waiting

    def end_round(self, tokens: Mapping[str, int], flops: float, peak: float) -> dict[str, float]:
        """Return the seconds and speeds of the round that ends now, and start the next one.

        Args:
            tokens: stage, or `round` -> number of tokens processed; a stage with none has no speed.
            flops: operations that the updates needed.
            peak: operations a second of the machine.
        """
        self.lap("log")  # the time since the last stage
        now = self._last
        seconds = {**self._seconds, "round": now - self._began}
        speeds = {f"speed/{name}": count / seconds[name] for name, count in tokens.items() if count and seconds[name]}
        if flops and seconds["learn"]:
            achieved = flops / seconds["learn"]
            speeds |= {"speed/learn_gflops": achieved / 1e9, "speed/peak_share": achieved / peak}
        if self._hidden is not None:
            seconds["hidden"] = self._hidden
        metrics = {f"seconds/{name}": value for name, value in seconds.items()} | speeds
        self._began = now
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._hidden = None
        return metrics

    def _since_last(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return passed
