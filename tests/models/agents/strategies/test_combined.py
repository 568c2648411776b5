"""A large model is moved by what tuning changed in a small one; a small tuned model lifts a larger untouched one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.agents.strategies.combined import Combined
from models.agents.strategy import Strategic
from models.base.errors import UserError
from models.engines.engine import EngineSettings, Generated, Sampling, TokenSampling, requests_of
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.bootstrap import bootstrap_mean
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.policies.build import SizeSettings, new_policy
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_models import PROMPTS, contents, plain_log_probs, tiny_policy, word_tokenizer
from tests.support.tiny_resources import CODEC

SETTINGS = EngineSettings(name="transformers", precision="float32")
DRAWN = TokenSampling(log_probs=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save a large model, a tuned small one and its base."""
    made = {}
    for seed, (name, hidden) in enumerate((("large", 64), ("tuned", 32), ("base", 32))):
        made[name] = tmp_path_factory.mktemp(name)
        save_model_folder(tiny_policy(torch.float32, seed, spread=3.0, hidden=hidden), word_tokenizer(), made[name])
    return made


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path]) -> TransformersEngine:
    return TransformersEngine(folders["large"], SETTINGS, end=CODEC.ends)


def strategy_of(folders: dict[str, Path], b: float, tuned: str = "tuned", base: str = "base") -> Combined:
    return Combined(tuned=str(folders[tuned]), base=str(folders[base]), b=b)


@pytest.mark.rotating(of=6)
def test_the_likeliest_token_is_that_of_the_enumerated_product(
    engine: TransformersEngine, folders: dict[str, Path]
) -> None:
    greedy = TokenSampling(temperature=0.0, log_probs=False)
    requests = requests_of(PROMPTS, Sampling(max_tokens=1), 0)
    every = [(prompt, [token]) for prompt in PROMPTS for token in range(engine.vocabulary)]
    sequences = Sequences([prompt for prompt, _ in every], [ids for _, ids in every])
    rows: dict[str, Tensor] = {}
    for seed, (name, hidden) in enumerate((("large", 64), ("tuned", 32), ("base", 32))):
        with torch.no_grad():
            flat = plain_log_probs(tiny_policy(torch.float32, seed, spread=3.0, hidden=hidden), sequences)
        rows[name] = torch.cat(flat).view(len(PROMPTS), -1)
    likeliest = set()
    for b in (1.0, -1.0, 4.0):
        made = Strategic(engine, CODEC, strategy_of(folders, b), 64).complete(requests, greedy)
        wanted = (rows["large"] + b * (rows["tuned"] - rows["base"])).argmax(-1).tolist()
        assert [turn.tokens[0] for turn in made] == wanted
        likeliest.add(tuple(wanted))
    assert len(likeliest) == 3


def test_with_b_zero_the_policy_answers_alone_bit_for_bit_and_no_model_is_opened(
    engine: TransformersEngine,
) -> None:
    requests = requests_of(PROMPTS, Sampling(max_tokens=8, samples=4), 3)
    nothing = Combined(tuned="/nowhere", base="/nowhere", b=0.0)
    made = Strategic(engine, CODEC, nothing, 64).complete(requests, DRAWN)
    assert contents(made) == contents(engine.complete(requests, DRAWN))
    assert not nothing.joint and Combined().joint


def test_a_tuned_model_that_is_its_own_base_changes_no_text(
    engine: TransformersEngine, folders: dict[str, Path]
) -> None:
    requests = requests_of(PROMPTS, Sampling(max_tokens=8, samples=4), 3)
    same = Strategic(engine, CODEC, strategy_of(folders, 2.0, base="tuned"), 64)
    alone = [turn.tokens for turn in engine.complete(requests, DRAWN)]
    assert [turn.tokens for turn in same.complete(requests, DRAWN)] == alone
    other = Strategic(engine, CODEC, strategy_of(folders, 2.0), 64)
    assert [turn.tokens for turn in other.complete(requests, DRAWN)] != alone
    assert other.policy.spent.calls == len(requests)


def test_models_that_do_not_fit_are_one_line(
    engine: TransformersEngine, folders: dict[str, Path], tmp_path: Path
) -> None:
    requests = requests_of(PROMPTS, Sampling(max_tokens=1), 3)

    def refused(strategy: Combined, line: str) -> None:
        with pytest.raises(UserError, match=line):
            Strategic(engine, CODEC, strategy, 64).complete(requests, DRAWN)

    refused(Combined(), "strategy.tuned: name the folder of a model")
    refused(Combined(tuned=str(folders["tuned"])), "strategy.base: name the folder of a model")
    refused(Combined(tuned=str(tmp_path / "nowhere"), base=str(folders["base"])), "nowhere: no such model folder")
    save_model_folder(tiny_policy(torch.float32, vocabulary=40), word_tokenizer(), tmp_path / "longer")
    refused(Combined(tuned=str(tmp_path / "longer"), base=str(folders["base"])), "has 40 tokens, and the policy 24")
    words = " ".join(f"word{number}" for number in range(21))
    foreign = train_tokenizer([words], TokenizerSettings(kind="words", vocabulary=64))
    assert len(foreign) == 24
    save_model_folder(tiny_policy(torch.float32), foreign, tmp_path / "foreign")
    refused(Combined(tuned=str(tmp_path / "foreign"), base=str(folders["base"])), "has other tokens than the policy's")


KEYS, VALUES = 64, 16
WORDS = ["q", "so", "um", *(f"k{number}" for number in range(KEYS)), *(f"v{number}" for number in range(VALUES))]
TOY = Codec(train_tokenizer([" ".join(WORDS)], TokenizerSettings(kind="words", vocabulary=128)))


def value_of(key: int) -> int:
    return (7 * key + key * key // 3) % VALUES


def texts_of(keys: list[int], helpful: bool) -> list[tuple[str, str]]:
    """Return prompts and completions: `so` and the key's value, or `um` and any value."""
    return [
        (f"q k{key}", f"so v{value_of(key)}" if helpful else f"um v{(5 * key + number) % VALUES}")
        for number, key in enumerate(keys)
    ]


def fit(model: Any, rows: list[tuple[str, str]], steps: int, rate: float, seed: int) -> Any:
    prompts, completions = TOY.prompts([prompt for prompt, _ in rows]), TOY.completions([text for _, text in rows])
    settings = SupervisedSettings(
        steps=steps, batch=64, compile=False, optimiser=OptimiserSettings(learning_rate=rate, warmup_steps=10)
    )
    fit_supervised(model, Sequences(prompts, completions), settings, seed=seed)
    return model


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_small_tuned_model_lifts_a_larger_untouched_model(seed: int, tmp_path: Path) -> None:
    """Pretraining holds the knowledge: each key has a value. Half of its texts state it, half state another one.

    The large model learns all values, the small one few. Tuning shows the small model only texts that state the value,
    so it learns to begin with `so`, although it does not know the values. Combined, the large model states them.
    """
    every = list(range(KEYS))
    pretraining = [*texts_of(every * 4, True), *texts_of(every * 4, False)]
    wide = SizeSettings(hidden=64, layers=2, heads=2, key_value_heads=2, feed_forward=128, positions=16)
    narrow = SizeSettings(hidden=8, layers=1, heads=1, key_value_heads=1, feed_forward=8, positions=16)
    large = fit(new_policy(wide, TOY.tokenizer, seed), pretraining, 120, 5e-3, seed)
    small = fit(new_policy(narrow, TOY.tokenizer, seed + 10), pretraining, 120, 5e-3, seed)
    folders = {name: tmp_path / name for name in ("large", "base", "tuned")}
    save_model_folder(large, TOY.tokenizer, folders["large"])
    save_model_folder(small, TOY.tokenizer, folders["base"])
    save_model_folder(fit(small, texts_of(every * 4, True), 40, 5e-3, seed), TOY.tokenizer, folders["tuned"])
    prompts = TOY.prompts([f"q k{key}" for key in every])
    requests = requests_of(prompts, Sampling(max_tokens=4, samples=16), seed)
    wanted = [f"so v{value_of(key)}" for key in every for _ in range(16)]

    def right(name: str, strategy: Combined) -> Tensor:
        engine = TransformersEngine(folders[name], SETTINGS, end=TOY.ends)
        made: list[Generated] = Strategic(engine, TOY, strategy, 16).complete(requests, DRAWN)
        hits = [
            float(text == target) for text, target in zip(TOY.text([turn.tokens for turn in made]), wanted, strict=True)
        ]
        return torch.tensor(hits).view(len(prompts), -1).mean(1)

    alone, tuned = Combined(b=0.0), Combined(tuned=str(folders["tuned"]), base=str(folders["base"]))
    untouched, small_tuned, combined = (
        bootstrap_mean(right(name, strategy).numpy(), seed=0)
        for name, strategy in (("large", alone), ("tuned", alone), ("large", tuned))
    )
    assert combined.low > untouched.high and combined.low > small_tuned.high
