"""Engines for policies that read images: completions, log-probs and new weights, for each family of base models."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.base.images import images_in
from models.base.picture_processor import PictureProcessor
from models.engines.canary import TOLERANCE, canary_gap, check, fixed_tokens
from models.engines.engine import CompletionRequest, EngineSettings, Sampling, TokenSampling
from models.engines.open_engine import open_engine
from models.engines.transformers_engine import TransformersEngine
from models.engines.vllm_engine import VllmEngine
from models.learner import image_features
from models.learner.log_probs import completion_log_probs
from models.learner.model_parts import part_of
from models.learner.packing import Sequences
from models.policies.build import open_policy
from models.text.encoding import Codec
from tests.support.device_here import placed
from tests.support.tiny_models import NO_VLLM
from tests.support.vision_families import FAMILIES, plain_log_probs, random_picture, save_base

WIDE, HIGH = random_picture(60, 30, 0), random_picture(33, 70, 1)
TEXTS = (f"{WIDE}how many shapes", f"{HIGH}how many", f"{HIGH}{WIDE}are there", "how many")
SETTINGS = EngineSettings(name="transformers", max_sequences=32, precision="float32")


def checked(engine: Any, model: Any, codec: Codec, samples: int = 3) -> None:
    """Compare the log-probs of an engine's samples with those of the learner."""
    prompts = [prompt for prompt in codec.prompts(TEXTS) for _ in range(samples)]
    requests = [CompletionRequest(tuple(prompt), number, max_tokens=6) for number, prompt in enumerate(prompts)]
    made = engine.complete(requests, TokenSampling())
    log_probs = torch.cat([completion.log_probs for completion in made])
    with torch.no_grad():
        expected, _ = completion_log_probs(model, Sequences(prompts, [completion.tokens for completion in made]))
    torch.testing.assert_close(log_probs, expected.cpu(), atol=1e-4, rtol=0)
    assert len({completion.tokens for completion in made}) > len(TEXTS)


def test_sampled_log_probs_are_those_of_the_learner_before_and_after_new_weights(vision_base: Path) -> None:
    policy, tokenizer = open_policy(vision_base)
    model: Any = placed(policy)
    engine, codec = TransformersEngine(vision_base, SETTINGS, end=1), Codec(tokenizer)
    checked(engine, model, codec)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.02)
    engine.load(model.state_dict().items(), 1)
    checked(engine, model, codec)


def test_greedy_completions_are_those_of_the_familys_own_model(vision_family: str, vision_base: Path) -> None:
    policy, tokenizer = open_policy(vision_base)
    codec, model = Codec(tokenizer), placed(policy)
    rows = TransformersEngine(vision_base, SETTINGS, end=1).generate(
        codec.prompts(TEXTS), Sampling(max_tokens=4, temperature=0.0), 0
    )
    for text, (completion,) in zip(TEXTS, rows, strict=True):
        (log_probs,) = plain_log_probs(vision_family, model, [(text, list(completion.tokens))], codec)
        torch.testing.assert_close(completion.log_probs, log_probs.detach().cpu(), atol=1e-4, rtol=0)


class FaultyEngine(TransformersEngine):
    """An engine that scores with a planted fault."""

    plant: Callable[[pytest.MonkeyPatch], None]

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            return super().score(prompts, completions)


def swap_images(patch: pytest.MonkeyPatch) -> None:
    names = {name: images_in(WIDE + HIGH)[1 - number] for number, name in enumerate(images_in(WIDE + HIGH))}
    inputs = PictureProcessor.inputs
    patch.setattr(PictureProcessor, "inputs", lambda self, name: inputs(self, names[name]))


def ignore_axes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(image_features, "positions_with_axes", lambda positions, spans, grids: positions)


FAULTS = [(name, "stale tower") for name in FAMILIES]
FAULTS += [(name, "swapped images") for name in ("idefics3", "smolvlm", "llava")]  # pictures of equal length
FAULTS += [(name, "wrong positions") for name in ("qwen2_5_vl", "qwen3_vl")]  # the families with axes


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=" ".join)
def test_the_canary_finds_a_planted_fault(name: str, fault: str, tmp_path: Path) -> None:
    base = save_base(name, tmp_path / "base")
    policy, tokenizer = open_policy(base)
    model, codec = placed(policy), Codec(tokenizer)
    rows = fixed_tokens(codec.prompts(TEXTS[:2]), end=1)
    engine = FaultyEngine(base, SETTINGS, end=1)
    engine.plant = lambda patch: None
    tolerance = TOLERANCE[None]
    check(canary_gap(engine, model, rows, None), tolerance, 0)
    if fault == "stale tower":
        old = {key: value.clone() for key, value in model.state_dict().items() if part_of(key) != "language"}
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.05)
        engine.load(model.state_dict().items(), 1)
        check(canary_gap(engine, model, rows, None), tolerance, 1)
        engine.load({**model.state_dict(), **old}.items(), 1)
    else:
        engine.plant = swap_images if fault == "swapped images" else ignore_axes
    with pytest.raises(UserError, match="engine and learner differ by"):
        check(canary_gap(engine, model, rows, None), tolerance, 1)


def test_a_gated_policy_that_reads_images_is_refused(vision_base: Path, tmp_path: Path) -> None:
    from models.policies.use import PolicyUse, write_use

    open_engine(vision_base, SETTINGS, longest=64, end=1, seed=0).close()
    write_use(vision_base, PolicyUse(mask_top_p=0.9))
    try:
        with pytest.raises(UserError, match="can neither be gated nor write within a mask"):
            open_engine(vision_base, SETTINGS, longest=64, end=1, seed=0)
    finally:
        write_use(vision_base, PolicyUse())


@NO_VLLM
@pytest.mark.slow
@pytest.mark.thorough
def test_vllm_with_outputs_of_the_old_tower_raises_at_the_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save_base("idefics3", tmp_path / "base")
    policy, tokenizer = open_policy(base)
    model: Any = placed(policy)
    rows = fixed_tokens(Codec(tokenizer).prompts(TEXTS[:2]), end=1)
    settings = EngineSettings(name="vllm", max_sequences=8, precision="float32")
    engine: Any = VllmEngine(base, settings, longest=64, end=1, seed=0)
    try:
        assert canary_gap(engine, model, rows, None) < TOLERANCE[None]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if part_of(name) != "language":
                    weight.add_(torch.randn_like(weight), alpha=0.1)
        engine.load(list(model.state_dict().items()), 1)
        assert canary_gap(engine, model, rows, None) < TOLERANCE[None]
        monkeypatch.setattr(engine.engine.llm_engine, "reset_encoder_cache", lambda: None)
        engine.load(list(model.state_dict().items()), 2)
        with pytest.raises(RuntimeError, match="Encoder cache miss"):  # the caller starts another engine
            canary_gap(engine, model, rows, None)
    finally:
        engine.close()


@NO_VLLM
@pytest.mark.slow
@pytest.mark.thorough
def test_vllm_gives_the_learners_log_probs_for_a_base_model(tmp_path: Path) -> None:
    base = save_base("idefics3", tmp_path / "base")
    file = base / "preprocessor_config.json"  # models on the hub split pictures; the policy does not, and vLLM must not
    file.write_text(file.read_text().replace('"do_image_splitting": false', '"do_image_splitting": true'))
    policy, tokenizer = open_policy(base)
    settings = EngineSettings(name="vllm", max_sequences=8, precision="float32")
    engine = open_engine(base, settings, longest=64, end=1, seed=0)
    try:
        checked(engine, placed(policy), Codec(tokenizer))
    finally:
        engine.close()
