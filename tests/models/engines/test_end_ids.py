"""End tokens: both engines stop at the same ones, and an exported policy has the token ids of its training."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.engines.transformers_engine import TransformersEngine
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder, name_ends
from models.text.tokenizer import load_tokenizer
from tests.support.special_tokens import llama_like
from tests.support.tiny_models import GREEDY, NO_VLLM, PROMPTS, tiny_policy, word_tokenizer

TEXTS = ["4 + 5 =", "7", "8 = ; 3", "16 + 2 + 3 ="]


def second_end(engine: TransformersEngine, prompts: Sequence[Sequence[int]]) -> int:
    """Return a token, other than the end token, from inside the greedy completions of `prompts`."""
    greedy = [row[0].tokens for row in engine.generate(prompts, GREEDY, 0)]
    return next(token for tokens in greedy for token in tokens[1:-1] if token != 1)


def test_the_decoding_loop_stops_at_any_of_the_ends_and_nowhere_else(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, spread=3.0), word_tokenizer(), tmp_path / "policy")
    engine = TransformersEngine(tmp_path / "policy", EngineSettings(precision="float32"), end=1)
    ends = (1, second_end(engine, PROMPTS))
    drawn = Sampling(max_tokens=8, samples=8)
    engine.end = ends
    made = [completion for row in engine.generate(PROMPTS, drawn, 0) for completion in row]
    for completion in made:
        assert not set(completion.tokens[:-1]) & set(ends)
        assert completion.finished == (completion.tokens[-1] in ends) and (
            completion.finished or len(completion.tokens) == 8
        )
        assert completion.log_probs is not None
        assert len(completion.log_probs) == len(completion.tokens)
    assert {completion.tokens[-1] for completion in made if completion.finished} == set(ends)
    engine.end = 1  # with fewer ends, the same random numbers draw the same tokens up to the first end
    for completion, longer in zip(
        made, (completion for row in engine.generate(PROMPTS, drawn, 0) for completion in row), strict=True
    ):
        assert longer.tokens[: len(completion.tokens)] == completion.tokens


@pytest.mark.slow
@NO_VLLM
@pytest.mark.thorough
def test_text_fed_to_an_exported_policy_has_the_training_ids_and_stops_where_training_does(tmp_path: Path) -> None:
    """The folder is served on text, as a user would do it: with transformers' `generate` and with `vllm.LLM`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from vllm import LLM, SamplingParams

    from models.engines.vllm_engine import prepare_environment

    folder = tmp_path / "policy"
    model = tiny_policy(torch.float32, vocabulary=len(llama_like()))
    save_model_folder(model, llama_like(), folder)
    ends = (
        1,
        second_end(
            TransformersEngine(folder, EngineSettings(precision="float32"), end=1), Codec(llama_like()).prompts(TEXTS)
        ),
    )
    name_ends(model, ends)
    save_model_folder(model, llama_like(), folder)
    codec = Codec(load_tokenizer(folder), also_end=ends_of_folder(folder))
    assert codec.ends == ends
    trained = codec.prompts(TEXTS)
    ours = open_engine(
        folder, EngineSettings(name="transformers", precision="float32"), longest=64, end=codec.ends, seed=0
    )
    expected = [row[0].tokens for row in ours.generate(trained, GREEDY, 0)]
    assert any(tokens[-1] == ends[1] for tokens in expected)

    tokenizer, served = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    for text, ids, answer in zip(TEXTS, trained, expected, strict=True):
        asked = tokenizer(text, return_tensors="pt")
        assert asked["input_ids"].tolist() == [ids]
        said = served.generate(**asked, do_sample=False, max_new_tokens=GREEDY.max_tokens)[0].tolist()
        assert tuple(said[len(ids) :]) == answer

    prepare_environment()
    vllm = LLM(
        model=str(folder), dtype="float32", max_model_len=64, max_num_seqs=8, enforce_eager=True,
        kv_cache_memory_bytes=1 << 26, disable_log_stats=True,
    )  # fmt: skip
    try:
        answers = vllm.generate(TEXTS, SamplingParams(temperature=0.0, max_tokens=GREEDY.max_tokens), use_tqdm=False)
    finally:
        vllm.llm_engine.engine_core.shutdown()
    assert [list(answer.prompt_token_ids or []) for answer in answers] == trained
    assert [tuple(answer.outputs[0].token_ids) for answer in answers] == expected
