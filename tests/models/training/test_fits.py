"""Fits before a training by several processes: they give the same model as a fit by one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.base.ranks import ALONE, Ranks
from models.learner.optimiser import OptimiserSettings
from models.learner.out_of_memory import NeedsLess
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings
from models.policies.build import LoraSettings
from models.reward_models.contrast import ContrastSettings
from models.reward_models.fit import Pair, RewardModelSettings
from models.training.fits import Fitted, RewardFit, SupervisedFit, fit_demonstrations, fit_preferences
from tests.support.rank_group import on_ranks
from tests.support.tiny_loops import Diary, save_start

SMALL_STEPS = OptimiserSettings(learning_rate=1e-4)
PROMPTS = [[3, 4], [5], [6, 7, 8], [4, 9], [10, 3, 5, 6], [7], [9, 8]]
COMPLETIONS = [[5, 6, 2], [7, 2], [3, 2], [8, 8, 8, 2], [4, 2], [9, 10, 3, 2], [6, 2]]
ROWS = Sequences(PROMPTS, COMPLETIONS)
PAIRS = [Pair(*rows) for rows in zip(PROMPTS, COMPLETIONS, reversed(COMPLETIONS), strict=True) if rows[1] != rows[2]]


def demonstrations_fit(start: Path, folder: Path, adapter: LoraSettings | None = None) -> SupervisedFit:
    return SupervisedFit(
        seed=3,
        precision="float32",
        trust_remote_code=False,
        start=start,
        precisions=folder / "precisions",
        result=folder / "fitted",
        settings=SupervisedSettings(steps=6, batch=4, report_every=2, token_budget=16, optimiser=SMALL_STEPS),
        adapter=adapter,
        train=ROWS,
        judged=ROWS.take([0, 2, 4]),
    )


def rewards_fit(start: Path, folder: Path) -> RewardFit:
    return RewardFit(
        seed=3,
        precision="float32",
        trust_remote_code=False,
        start=start,
        precisions=folder / "precisions",
        result=folder / "fitted",
        settings=RewardModelSettings(steps=6, batch_pairs=4, report_every=2, token_budget=32, optimiser=SMALL_STEPS),
        pairs=PAIRS,
        judged=PAIRS[:4],
    )


def made(ranks: Ranks, make: Any, fit: Any) -> tuple[Fitted[Any], Diary]:
    diary = Diary({}, {}, [])
    return make(fit, ranks, None, diary.watchers()), diary


def weights_in(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "fitted" / "model.safetensors")


def held_together(make: Any, fit_in: Any, start: Path, tmp_path: Path) -> tuple[Any, Any]:
    """Fit with one process and with two, check that the models agree, and return what each fit measured."""
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    alone, heard = made(ALONE, make, fit_in(start, tmp_path / "1"))
    (first, said), (_, silent) = on_ranks(2, made, make, fit_in(start, tmp_path / "2"))
    assert heard.resumed == said.resumed == [0] and silent.resumed == [] and not silent.metrics
    assert sorted(said.metrics) == sorted(heard.metrics) == [2, 4, 6]
    assert said.metrics[6]["loss"] == pytest.approx(heard.metrics[6]["loss"], abs=1e-6)
    whole, cut = weights_in(tmp_path / "1"), weights_in(tmp_path / "2")
    before = load_file(start / "model.safetensors")
    assert whole.keys() == cut.keys() and max(float((whole[name] - cut[name]).abs().max()) for name in whole) <= 1e-6
    assert max(float((whole[name] - before[name]).abs().max()) for name in whole.keys() & before.keys()) > 1e-4
    assert alone.precision == first.precision == "float32"
    return alone.measured, first.measured


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("adapter", [None, pytest.param(LoraSettings(rank=2), marks=pytest.mark.thorough)])
def test_two_ranks_fit_demonstrations_as_one_does(tmp_path: Path, adapter: LoraSettings | None) -> None:
    start = save_start(tmp_path / "start")
    alone, two = held_together(
        fit_demonstrations, lambda start, folder: demonstrations_fit(start, folder, adapter), start, tmp_path
    )
    assert two == pytest.approx(alone, abs=1e-6) and alone["final_loss"] > 0


@pytest.mark.thorough
@pytest.mark.parametrize("contrast", [None, ContrastSettings(goal=0.5, batch=0.1)])
def test_two_ranks_fit_a_reward_model_as_one_does_and_score_with_it(
    tmp_path: Path, contrast: ContrastSettings | None
) -> None:
    def fit_in(start: Path, folder: Path) -> RewardFit:
        fit = rewards_fit(start, folder)
        return replace(fit, settings=replace(fit.settings, contrast=contrast))

    start = save_start(tmp_path / "start")
    alone, two = held_together(fit_preferences, fit_in, start, tmp_path)
    for mine, theirs in zip(alone, two, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=0.0)


def test_less_memory_changes_how_a_fit_is_made_and_nothing_else(tmp_path: Path) -> None:
    less = NeedsLess("out of memory")
    less.budget, less.recompute = 7, True
    fits: tuple[Any, ...] = (demonstrations_fit(tmp_path, tmp_path), rewards_fit(tmp_path, tmp_path))
    for fit in fits:
        lighter = fit.with_less(less)
        assert lighter.settings.token_budget == 7 and lighter.recompute
        assert replace(lighter.settings, token_budget=fit.settings.token_budget) == fit.settings
        assert (lighter.seed, lighter.result) == (fit.seed, fit.result)
