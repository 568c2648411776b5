"""Staleness of one round: the engine generates the next round's completions while the learner fits this round's."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from threading import Event, Timer
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from models.engines.engine import EngineSettings, Generated, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.fit import fit_round
from models.parts.objective.grpo import Grpo
from models.policies.build import LoraSettings, with_adapter
from models.training.ahead import Ahead
from tests.support.tiny_loops import END, SCHEDULE, new_learner, run, same_weights, save_start
from tests.support.tiny_models import each_token, scored

pytestmark = pytest.mark.rotating(of=8)

AHEAD = replace(SCHEDULE, staleness=1)
STILL = OptimiserSettings(learning_rate=0.0)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


def without_times(metrics: Mapping[int, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    return {
        number: {key: value for key, value in values.items() if key.split("/")[0] not in ("seconds", "speed", "memory")}
        for number, values in metrics.items()
    }


class Observed(TransformersEngine):
    """An engine that records the hash of its weights at each load, and before and after each generation."""

    loaded: ClassVar[list[str]] = []
    before: ClassVar[list[str]] = []
    after: ClassVar[list[str]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Observed.loaded, Observed.before, Observed.after = [], [], []

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        super().load(weights, version)
        Observed.loaded.append(self.hash())

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        Observed.before.append(self.hash())
        made = super().generate(prompts, sampling, seed)
        Observed.after.append(self.hash())
        return made

    def hash(self) -> str:
        total = hashlib.sha256()
        for tensor in self.model.state_dict().values():
            total.update(tensor.cpu().numpy().tobytes())
        return total.hexdigest()


def test_every_round_is_one_step_stale_but_the_first_and_those_after_checkpoints(start: Path, tmp_path: Path) -> None:
    _, diary = run(start, tmp_path, schedule=AHEAD)
    assert [values["rollouts/staleness"] for values in diary.metrics.values()] == [0, 1, 0, 1, 0, 1]
    _, diary = run(start, tmp_path / "none", schedule=replace(AHEAD, checkpoint_every=100))
    assert [values["rollouts/staleness"] for values in diary.metrics.values()] == [0, 1, 1, 1, 1, 1]


def test_the_engine_holds_the_weights_of_the_round_before_all_the_while_that_it_generates(
    start: Path, tmp_path: Path
) -> None:
    run(start, tmp_path, schedule=replace(AHEAD, checkpoint_every=100), engine=Observed)
    policies = Observed.loaded  # index n: the weights after n rounds
    assert len(set(policies)) == 7
    assert Observed.before == Observed.after == [policies[0], *policies[:5]]


def test_without_staleness_every_round_is_sampled_from_the_weights_that_it_fits(start: Path, tmp_path: Path) -> None:
    _, diary = run(start, tmp_path, engine=Observed)
    assert Observed.before == Observed.after == Observed.loaded[:6] and len(set(Observed.loaded)) == 7
    assert all("rollouts/staleness" not in values for values in diary.metrics.values())


@pytest.mark.parametrize("lora", [False, True])
def test_a_killed_run_that_generates_ahead_ends_with_the_weights_of_one_never_interrupted(
    start: Path, tmp_path: Path, lora: bool
) -> None:
    whole, diary = run(start, tmp_path / "whole", schedule=AHEAD, lora=lora)
    run(start, tmp_path / "killed", schedule=AHEAD, lora=lora, killed_in=5)
    resumed, told_after = run(start, tmp_path / "killed", schedule=AHEAD, lora=lora)
    assert told_after.resumed == [4] and same_weights(whole, resumed)
    assert without_times(told_after.metrics) == {n: without_times(diary.metrics)[n] for n in (5, 6)}
    assert not same_weights(whole, run(start, tmp_path / "in step", lora=lora)[0])


def test_at_learning_rate_zero_staleness_changes_nothing(start: Path, tmp_path: Path) -> None:
    in_step, diary = run(start, tmp_path / "a", schedule=replace(SCHEDULE, optimiser=STILL))
    ahead, told_ahead = run(start, tmp_path / "b", schedule=replace(AHEAD, optimiser=STILL))
    assert same_weights(in_step, ahead)
    shown = without_times(told_ahead.metrics)
    assert [values.pop("rollouts/staleness") for values in shown.values()] == [0, 1, 0, 1, 0, 1]
    assert shown == without_times(diary.metrics)


def test_what_is_stale_is_weighed_by_how_much_likelier_it_has_become(start: Path, tmp_path: Path) -> None:
    eager = OptimiserSettings(learning_rate=1e-2, warmup_steps=1)
    schedule = replace(AHEAD, epochs=1, minibatches=1, checkpoint_every=3, optimiser=eager)
    _, diary = run(start, tmp_path, schedule=schedule)
    gaps: dict[float, list[float]] = {values["rollouts/staleness"]: [] for values in diary.metrics.values()}
    for values in diary.metrics.values():
        gaps[values["rollouts/staleness"]].append(values["policy/engine_gap"])
        if not values["rollouts/staleness"]:
            assert values["policy/importance_weight"] == pytest.approx(1.0, abs=1e-4)
    assert max(gaps[0]) < 1e-4 and min(gaps[1]) > 1e-2


def test_generation_hides_behind_learning_and_the_stretches_still_make_the_round(start: Path, tmp_path: Path) -> None:
    _, diary = run(start, tmp_path, schedule=replace(AHEAD, checkpoint_every=100))
    gaps = []
    for number, values in diary.metrics.items():
        stretches = sum(
            value for key, value in values.items() if key.startswith("seconds/") and key[8:] not in ("round", "hidden")
        )
        gaps.append(abs(values["seconds/round"] - (stretches - values.get("seconds/hidden", 0.0))))
        assert ("seconds/hidden" in values) == (number < 6)
    assert median(gaps) < 5e-3  # the median, because a busy machine may pause between two stretches
    assert "speed/generate" not in diary.metrics[6]  # its completions were all generated during the round before


def test_leaving_waits_for_what_is_being_generated() -> None:
    going_on, may_end, ended = Event(), Event(), Event()

    def make(number: int) -> list[Any]:
        going_on.set()
        may_end.wait(10)
        ended.set()
        return []

    with pytest.raises(KeyboardInterrupt), Ahead(make, torch.device("cpu")) as ahead:
        ahead.begin(1)
        going_on.wait(10)
        Timer(0.2, may_end.set).start()
        raise KeyboardInterrupt
    assert ended.is_set()


class Dying(TransformersEngine):
    """An engine that fails in the generation of the third round."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        if seed == 7 * 1_000_003 + 2:
            raise RuntimeError("the engine died")
        return super().generate(prompts, sampling, seed)


def test_an_engine_that_dies_behind_the_learners_back_ends_the_run_with_its_own_words(
    start: Path, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="the engine died"):
        run(start, tmp_path, schedule=replace(AHEAD, checkpoint_every=100), engine=Dying)


def test_a_fit_draws_no_random_number_which_the_engine_beside_it_would_miss() -> None:
    """vLLM and the learner share torch's generator. If both drew at the same time, runs would not be reproducible."""
    learner = new_learner(SCHEDULE)
    base: Any = learner.policy
    learner.policy = with_adapter(base, LoraSettings(rank=4, dropout=0.5), seed=0).train()
    learner.optimiser = build_optimiser(learner.policy, SCHEDULE.optimiser)
    before = torch.get_rng_state()
    chosen = scored([1.0, -1.0], [2])
    fit_round(learner, Grpo(kl=0.1), chosen, each_token(chosen.rewards, chosen), SCHEDULE, longest=5)
    assert torch.equal(torch.get_rng_state(), before)


THREADS = """
import ctypes, torch
from models.training.ahead import Ahead

(name, *_) = {line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}
openmp = ctypes.CDLL(name)
torch.set_num_threads(1)
with Ahead(lambda number: [openmp.omp_get_max_threads()], torch.device("cpu")) as ahead:
    ahead.begin(0)
    print(openmp.omp_get_max_threads(), *ahead.take(0)[0])
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="finds the OpenMP library in Linux's /proc")
def test_the_generating_thread_has_the_learners_number_of_openmp_threads_from_its_start() -> None:
    root = Path(__file__).parents[3]
    said = subprocess.run(
        [sys.executable, "-c", THREADS],
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
    )
    assert said.stdout.split() == ["1", "1"], said.stderr


@pytest.mark.thorough
def test_vllm_too_generates_ahead_and_a_killed_run_ends_the_same(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from models.engines.vllm_engine import VllmEngine

    one_engine = VllmEngine(start, EngineSettings(precision="float32"), longest=64, end=END, seed=7)

    def engine(folder: Path, settings: EngineSettings, *, end: int) -> VllmEngine:
        return one_engine

    whole, diary = run(start, tmp_path / "whole", schedule=AHEAD, engine=engine)
    assert [values["rollouts/staleness"] for values in diary.metrics.values()] == [0, 1, 0, 1, 0, 1]
    run(start, tmp_path / "killed", schedule=AHEAD, engine=engine, killed_in=5)
    resumed, told_after = run(start, tmp_path / "killed", schedule=AHEAD, engine=engine)
    one_engine.close()
    assert told_after.resumed == [4] and same_weights(whole, resumed)
