"""Policies that read images: their settings, their starting weights, their folder, and vLLM on it."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from models.base.errors import UserError
from models.base.images import reference_to
from models.engines.engine import EngineSettings, Sampling
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.policies.build import SizeSettings, open_policy
from models.policies.folder import save_model_folder
from models.policies.vision import VisionSettings
from models.text.encoding import Codec
from tests.support.tiny_models import NO_VLLM
from tests.support.tiny_vision import png, rows_about_scenes, sequences_of, tiny_vision_policy

ROWS = rows_about_scenes(pictures=4, each=4)


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(UserError, match="pixels 30 must be a multiple of patch 4 times merge 4"):
        VisionSettings(pixels=30)
    with pytest.raises(UserError, match="vision: hidden 33 must be a multiple of heads 2"):
        VisionSettings(hidden=33)
    with pytest.raises(UserError, match=r"set policy\.size\.tied to false"):
        SizeSettings(spread="fan_in")
    assert VisionSettings().tokens == 4 and VisionSettings(pixels=64, merge=2).tokens == 64
    assert SizeSettings().vision is None


def test_fan_in_spreads_weights_by_their_inputs() -> None:
    model, _ = tiny_vision_policy(torch.float32)
    spreads = {name: float(weight.detach().std()) for name, weight in model.named_parameters() if weight.ndim > 1}
    assert spreads["model.text_model.embed_tokens.weight"] == pytest.approx(1.0, rel=0.1)
    assert spreads["model.vision_model.embeddings.position_embedding.weight"] == pytest.approx(0.3, rel=0.1)
    assert spreads["model.text_model.layers.1.self_attn.q_proj.weight"] == pytest.approx(64**-0.5, rel=0.1)
    assert spreads["model.vision_model.embeddings.patch_embedding.weight"] == pytest.approx(48**-0.5, rel=0.1)
    again, _ = tiny_vision_policy(torch.float32)
    other, _ = tiny_vision_policy(torch.float32, seed=1)
    weights = [each.lm_head.weight for each in (model, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_folder_is_read_back_with_the_same_tokens_and_values(tmp_path: Path) -> None:
    model, codec = tiny_vision_policy(torch.float32)
    save_model_folder(model, codec.tokenizer, tmp_path / "policy")
    again, tokenizer = open_policy(tmp_path / "policy")
    sequences = sequences_of(Codec(tokenizer), ROWS)
    assert sequences == sequences_of(codec, ROWS)
    with torch.no_grad():
        ours, theirs = (completion_log_probs(each, sequences)[0].cpu() for each in (model, again))
    assert torch.equal(ours, theirs)


@NO_VLLM
@pytest.mark.thorough
def test_vllm_gives_the_learners_log_probs_before_and_after_new_weights(tmp_path: Path) -> None:
    from models.engines.vllm_engine import VllmEngine

    model, codec = tiny_vision_policy(torch.float32)
    save_model_folder(model, codec.tokenizer, tmp_path / "policy")
    engine = VllmEngine(tmp_path / "policy", EngineSettings(), longest=32, end=codec.ends, seed=0, dtype=torch.float32)
    wide = reference_to(png(Image.new("RGB", (40, 20), "blue")))
    prompts = codec.prompts([*(text for text, _ in ROWS), f"{wide} how many shapes"])

    def compare() -> None:
        made = engine.generate(prompts, Sampling(max_tokens=3, samples=3), 0)
        drawn = [answer for group in made for answer in group]
        sequences = Sequences([ids for ids in prompts for _ in range(3)], [answer.tokens for answer in drawn])
        with torch.no_grad():
            learned = completion_log_probs(model, sequences)[0].cpu()
        sampled = torch.cat([answer.log_probs for answer in drawn if answer.log_probs is not None])
        torch.testing.assert_close(sampled, learned, atol=2e-5, rtol=1e-5)
        scores = engine.score(sequences.prompts, sequences.completions)
        torch.testing.assert_close(
            torch.tensor([value for row in scores for value in row]), learned, atol=2e-5, rtol=1e-5
        )

    try:
        compare()
        with torch.no_grad():
            for weight in model.parameters():  # the vision tower too: outputs that were kept are stale
                weight.add_(0.05 * torch.randn_like(weight))
        engine.load(list(model.state_dict().items()), 1)
        compare()
        with pytest.raises(UserError, match="prompt 0 has 40 tokens"):
            engine.generate([[*prompts[0], *[7] * (40 - len(prompts[0]))]], Sampling(max_tokens=1), 0)
    finally:
        engine.close()
