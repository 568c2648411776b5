"""Optimiser steps if memory runs out or numbers are not finite: a step is repeated, skipped, or stops the run."""

import copy
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.method import tally as tallies
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.schedule import ScheduleSettings
from models.parts.objective.grpo import Grpo
from tests.support.fit_rounds import LONGEST, STEP, TOKENS, learner_of, round_of
from tests.support.tiny_models import leave_room_for, tiny_policy

POISONED = [*TOKENS[:3], torch.full_like(TOKENS[3], torch.nan), TOKENS[4]]
"""Advantages with which the loss of the first group is finite and that of the second is not."""
SMALL = OptimiserSettings(learning_rate=1e-3, warmup_steps=0)


def fit(
    learner: Learner, advantage: Sequence[Tensor] = TOKENS, round_number: int = 0, **settings: Any
) -> dict[str, float]:
    schedule = ScheduleSettings(rounds=4, **{"optimiser": STEP, **settings})
    return fit_round(learner, Grpo(kl=0.1), round_of(), advantage, schedule, LONGEST, round_number)


def weights(learner: Learner) -> dict[str, Tensor]:
    return copy.deepcopy(dict(learner.policy.named_parameters()))


# Numbers that are not finite


def test_a_skipped_step_moves_nothing_and_is_counted_and_the_others_are_as_without_it() -> None:
    learner, alone = learner_of(), learner_of()
    with pytest.warns(UserWarning, match="update 1: the loss is not finite.*; skipped, 1 in a row"):
        metrics = fit(learner, POISONED, minibatches=2, skip_nonfinite=1)
    good = round_of().take(torch.tensor([0, 1]))
    schedule = ScheduleSettings(optimiser=STEP, rounds=4, minibatches=2)
    expected = fit_round(alone, Grpo(kl=0.1), good, TOKENS[:2], schedule, LONGEST)
    torch.testing.assert_close(weights(learner), weights(alone), rtol=1e-12, atol=1e-14)
    assert metrics.pop("skipped_updates") == 1 and learner.updates == 2
    assert metrics == pytest.approx(expected, rel=1e-9)


def test_after_so_many_in_a_row_the_run_stops_and_a_good_step_begins_the_count_anew() -> None:
    learner = learner_of()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for number in range(3):  # good, bad, good, bad, good, bad
            fit(learner, POISONED, number, minibatches=2, skip_nonfinite=1, optimiser=SMALL)
        assert learner.tally.skipped == 1
        before = weights(learner)
        with pytest.raises(UserError, match="update 6: the loss is not finite"):
            fit(learner, [torch.full_like(row, torch.nan) for row in TOKENS], 3, skip_nonfinite=1)
    torch.testing.assert_close(weights(learner), before, rtol=0, atol=0)


def test_nothing_is_skipped_by_default() -> None:
    with pytest.raises(UserError, match="update 0: the loss is not finite; lower schedule"):
        fit(learner_of(), [torch.full_like(row, torch.nan) for row in TOKENS])


def test_a_gradient_that_is_not_finite_is_skipped_too() -> None:
    """The loss is finite, but its gradient is not."""

    class Steep(Grpo):
        def __call__(self, log_prob: Tensor, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
            return -torch.sqrt(log_prob - log_prob.detach()), {}

    learner = learner_of()
    schedule = ScheduleSettings(optimiser=STEP, rounds=4, skip_nonfinite=1)
    with pytest.warns(UserWarning, match="update 0: the gradient norm is (nan|inf)"):
        metrics = fit_round(learner, Steep(), round_of(), TOKENS, schedule, LONGEST)
    assert metrics["skipped_updates"] == 1
    torch.testing.assert_close(weights(learner), dict(tiny_policy().named_parameters()), rtol=0, atol=0)


def test_a_checkpoint_remembers_the_count_and_the_smaller_rows() -> None:
    tally = tallies.Tally(completions=7, token_budget=12, recompute=True, skipped=2)
    assert tallies.read(tallies.written(tally)) == tally


# Memory that runs out


def test_a_step_that_runs_out_of_memory_is_made_again_with_smaller_rows_and_is_the_same_step() -> None:
    undisturbed, learner = learner_of(), learner_of()
    expected = fit(undisturbed, token_budget=64)
    rows = leave_room_for(learner.policy, 20)
    with pytest.warns(UserWarning, match="update 0: out of memory with rows of 64 tokens and gradient checkpoi"):
        metrics = fit(learner, token_budget=64)
    assert max(rows) > 20 and max(rows[-2:]) <= 20 and learner.tally.token_budget == 16
    torch.testing.assert_close(weights(learner), weights(undisturbed), rtol=1e-6, atol=1e-8)
    assert metrics == pytest.approx(expected, rel=1e-6)


def test_rows_stay_smaller_for_the_rest_of_the_run() -> None:
    learner = learner_of()
    rows = leave_room_for(learner.policy, 20)
    with pytest.warns(UserWarning, match="out of memory"):
        fit(learner, token_budget=64)
    rows.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(learner, round_number=1, token_budget=64)
    assert rows and max(rows) <= 20


def test_half_of_a_gradient_is_taken_back() -> None:
    """Memory runs out at the second row, after the gradient of the first row has been added."""
    learner, undisturbed = learner_of(), learner_of()
    fit(undisturbed, token_budget=24)
    calls = Counter[str]()

    def break_once(module: Any, args: Any) -> None:
        if torch.is_grad_enabled():
            calls["rows"] += 1
            if calls["rows"] == 2:
                raise torch.OutOfMemoryError("out of memory")

    learner.policy.get_submodule("model").register_forward_pre_hook(break_once)
    with pytest.warns(UserWarning, match="out of memory"):
        fit(learner, token_budget=24)
    assert calls["rows"] > 3
    torch.testing.assert_close(weights(learner), weights(undisturbed), rtol=1e-6, atol=1e-8)


def test_where_no_row_is_short_enough_one_line_says_so() -> None:
    learner = learner_of()
    leave_room_for(learner.policy, 2)
    with (
        pytest.warns(UserWarning, match="made again"),
        pytest.raises(UserError, match="update 0: out of memory with rows of"),
    ):
        fit(learner, token_budget=64)
    torch.testing.assert_close(weights(learner), dict(tiny_policy().named_parameters()), rtol=0, atol=0)


def test_another_error_is_not_taken_for_memory() -> None:
    learner = learner_of()

    def break_down(module: Any, args: Any) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    learner.policy.get_submodule("model").register_forward_pre_hook(break_down)
    with pytest.raises(RuntimeError, match="device-side assert"):
        fit(learner)


LIMIT = 48 * 2**20
LIMITED = """
import json, resource, sys, warnings
import torch
torch.set_num_threads(1)
from tests.support.fit_rounds import large_fit, large_round
limit = json.loads(sys.argv[1])
chosen = large_round()
if limit:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    learner = large_fit(chosen)
digest = [float(value.detach().double().sum()) for value in learner.policy.parameters()]
print(json.dumps({"told": [str(w.message) for w in told if "memory" in str(w.message)], "sums": digest}))
"""


@pytest.fixture
def paths() -> Iterator[dict[str, str]]:
    yield {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}


@pytest.mark.thorough
def test_where_the_machine_has_no_memory_left_the_weights_are_those_of_an_undisturbed_run(
    paths: dict[str, str],
) -> None:
    """A process runs with a memory limit of 48 MiB above its memory use before the fit."""

    def run(limit: int) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, json.dumps(limit)], env=paths, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    undisturbed, limited = run(0), run(LIMIT)
    assert not undisturbed["told"]
    began = "update 0: out of memory with rows of 2048 tokens; made again with rows of 2048 tokens and gradient checkpo"
    assert limited["told"] and limited["told"][0].startswith(began)
    assert limited["sums"] == pytest.approx(undisturbed["sums"], rel=1e-6)


# Waiting for the device


class Waits(TorchDispatchMode):
    """Counter of operations for which the host would wait for a GPU: reading a floating-point number, and selecting
    rows by a mask. Integer tensors are not counted, because they are on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        by_flags = name.startswith("aten.index.") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if by_flags or name.startswith(("aten._local_scalar_dense", "aten.masked_select")):
            self.seen[name] += int(args[0].is_floating_point())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("minibatches", [1, 2])
def test_no_micro_batch_waits_for_the_device(minibatches: int) -> None:
    learner = learner_of()
    fit(learner)  # the first fit tries the model on a few tokens, which is not counted here
    with Waits() as waits:
        fit(learner, token_budget=14, minibatches=minibatches)
    assert not waits.seen.total()


def test_the_count_would_notice() -> None:
    values = torch.ones(3)
    with Waits() as waits:
        float(values.sum())
        values[values > 0]
    assert waits.seen.total() == 2
