"""The one engine of a flow: fine-tuning opens it, later evaluations reuse it, and the results do not change."""

import logging
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from small_steps import context, warm_started

from models.engines import open_engine as engines
from models.engines.engine import Engine, EngineSettings, Sampling
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from tasks.compute import fitting, shared_engine
from tasks.registered.policy import policy_of_step
from tasks.runner.step import StepResult
from tasks.steps import evaluate, fine_tune
from tests.support.tiny_models import NO_VLLM, PROMPTS, contents, tiny_policy, word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

RECIPE = """
reward_model: null
rollouts: {name: sample, prompts: 3, group_size: 2, max_tokens: 5}
select: {name: all}
objective: {name: grpo, entropy_bonus: 0.1}
engine: {name: transformers}
policy: {precision: float32, size: {positions: 64}}
schedule: {rounds: 3, checkpoint_every: 1, samples_every: 3, optimiser: {learning_rate: 0.03}}
evaluation: {problems: 4, samples: 3, ks: [1]}
gate: {problems: 4, samples: 3}
"""
LIMITS = {"longest": 64, "end": 1}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Return the list of engines. Every engine that is opened is added to it."""
    entry = []

    def counted(*arguments, **named):
        entry.append(engines.open_engine(*arguments, **named))
        return entry[-1]

    monkeypatch.setattr(shared_engine, "open_engine", counted)
    return entry


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    # The tasks run outside a flow, where Prefect gives them neither a logger nor the place on the GPU.
    for step in (fine_tune, fitting, evaluate):
        monkeypatch.setattr(step, "get_run_logger", lambda: logging.getLogger("steps"))
    monkeypatch.setattr(shared_engine, "gpu_slot", nullcontext)
    return warm_started(tmp_path)


def tuned(steps: dict, key: str, overrides: tuple[str, ...] = ()) -> StepResult:
    sections = fitting.FineTuneSections(load_recipe("tiny.yaml", list(overrides)))
    handed = context(steps["home"], "fine_tune", key * 64, steps["run"], sections)
    return fine_tune.fine_tune.fn(handed, steps["validated"], steps["warmed"], steps["rewarded"], {})


def measured(steps: dict, result: StepResult, key: str, split: str = "validation") -> str:
    """Evaluate a policy, and return the digest of the records."""
    sections = evaluate.GateSections if split == "gate" else evaluate.ShownSections
    handed = context(steps["home"], "evaluate", key * 64, steps["run"], sections(load_recipe("tiny.yaml")))
    policy = policy_of_step(result)
    return evaluate.evaluate_policy.fn(handed, policy, steps["validated"], steps["rewarded"]).digest


def test_fine_tuning_and_every_evaluation_share_one_engine_and_make_what_engines_of_their_own_make(steps, opened):
    """Evaluations share one result, whether they borrow the engine of fine-tuning or open one of their own.

    They open their own if fine-tuning was taken from the cache.
    """
    with shared_engine.shared_engine():
        together = tuned(steps, "a")
        shared = [
            measured(steps, name, key, split)
            for name, key, split in (
                (together, "a", "validation"), (steps["warmed"], "b", "validation"), (together, "c", "gate"),
            )
        ]  # fmt: skip
    assert len(opened) == 1 and opened[0].engine is None, "opened once, closed at the end"
    alone = tuned(steps, "d")
    assert alone.digest == together.digest
    assert shared == [
        measured(steps, alone, "e"), measured(steps, steps["warmed"], "f"), measured(steps, alone, "g", "gate"),
    ]  # fmt: skip
    assert len(opened) == 5 and len(set(shared)) == 3


@pytest.mark.thorough
def test_a_training_killed_in_its_rounds_closes_the_engine_goes_on_and_is_measured_as_an_unbroken_one(
    steps, opened, monkeypatch
):
    with shared_engine.shared_engine():
        unbroken = tuned(steps, "a")
        expected = measured(steps, unbroken, "a")

    rounds = iter(range(3))

    def killed() -> None:
        if next(rounds, 0) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting.interrupt, "raise_again", killed)
        with pytest.raises(KeyboardInterrupt), shared_engine.shared_engine():
            tuned(steps, "b")
    assert all(engine.engine is None for engine in opened)
    assert list((steps["home"] / "store/fine_tune" / ("b" * 24)).glob("checkpoints/round_*")), "it got somewhere"
    with shared_engine.shared_engine():
        resumed = tuned(steps, "b")
        assert measured(steps, resumed, "b") == expected
    assert resumed.digest == unbroken.digest and len(opened) == 3


def test_a_learner_of_another_precision_has_an_engine_of_its_own_which_is_closed_first(steps, opened):
    with shared_engine.shared_engine():
        result = tuned(steps, "a", ("policy.precision=bfloat16",))
        learned_with = opened[0]
        assert learned_with.dtype == torch.bfloat16 and learned_with.engine is not None
        measured(steps, result, "a")
        if not torch.cuda.is_available():  # on a GPU, an evaluation uses bfloat16 too
            assert len(opened) == 2 and opened[1].dtype == torch.float32 and learned_with.engine is None


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(name="transformers"),
        pytest.param(EngineSettings(name="vllm", max_sequences=8), marks=[pytest.mark.thorough, NO_VLLM]),
    ],
    ids=lambda settings: settings.name,
)
def test_after_rounds_of_learning_the_engine_says_what_a_new_one_says_to_the_last_bit(
    tmp_path: Path, settings: EngineSettings
) -> None:
    drawn = Sampling(max_tokens=12, samples=6)
    asked = [Sampling(max_tokens=12, samples=6, log_probs=False), Sampling(max_tokens=12, temperature=0.0), drawn]
    for number, name in enumerate(("start", "candidate")):
        save_model_folder(tiny_policy(torch.float32, seed=number), word_tokenizer(), tmp_path / name)
    with shared_engine.shared_engine():
        with shared_engine.borrowed_engine(tmp_path / "start", settings, dtype=torch.float32, **LIMITS) as learning:
            for number in range(3):  # as the loop does: load weights, run the canary, sample
                learning.load(tiny_policy(torch.float32, seed=10 + number).state_dict().items())
                learning.score(PROMPTS, [[5, 1]] * len(PROMPTS))
                learning.generate(PROMPTS, drawn, number)
        with shared_engine.borrowed_engine(tmp_path / "candidate", settings, **LIMITS) as lent:
            assert lent is learning or torch.cuda.is_available()
            said = [lent.generate(PROMPTS, sampling, 5) for sampling in asked]
            scored = lent.score(PROMPTS, [[5, 1]] * len(PROMPTS))
    fresh = engines.open_engine(tmp_path / "candidate", settings, seed=0, **LIMITS)
    try:
        assert contents(said) == contents([fresh.generate(PROMPTS, sampling, 5) for sampling in asked])
        assert scored == fresh.score(PROMPTS, [[5, 1]] * len(PROMPTS))
    finally:
        fresh.close()
