"""Use of a policy that learned from hindsight: the saved folder, evaluation, and serving as a chat model."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.learner.packing import Sequences
from models.parts.rollouts.hindsight import Hindsight
from models.policies.folder import save_model_folder
from models.policies.use import PolicyUse, read_use
from models.text.tokenizer import load_tokenizer
from tests.support.tiny_loops import PROBLEMS, TEXTS, TOKENIZER, save_start
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC

WORDS: dict[str, Any] = {"bad": "; ;", "good": "+ ="}
GOOD = tuple(CODEC.completions(["+ ="])[0][:-1])
SAMPLING = Sampling(max_tokens=6, samples=2)


def exported(folder: Path) -> Path:
    source = Hindsight(**WORDS)
    save_model_folder(
        tiny_policy(torch.float32, spread=3.0),
        TOKENIZER,
        folder,
        lambda into: source.export(cast(Any, None), CODEC, folder, into),
    )
    return folder


def test_the_folder_says_that_the_words_before_a_good_answer_follow_every_prompt(tmp_path: Path) -> None:
    use = read_use(exported(tmp_path / "policy"))
    assert use.after_prompt == GOOD and use.text == "+ =" and not use.gated
    assert read_use(save_start(tmp_path / "start")) == PolicyUse()


def test_evaluated_the_policy_is_asked_for_a_good_answer_and_the_reward_model_sees_the_plain_prompt(
    tmp_path: Path,
) -> None:
    folder = exported(tmp_path / "policy")
    engine = TransformersEngine(folder, EngineSettings(precision="float32"), end=1, dtype=torch.float32)
    seen: list[tuple[int, ...]] = []

    def score(sequences: Sequences) -> Tensor:
        seen.extend(tuple(prompt) for prompt in sequences.prompts)
        return torch.zeros(len(sequences.prompts))

    measured = evaluate(engine, CODEC, PROBLEMS, SAMPLING, 5, score, after_prompt=read_use(folder).after_prompt)
    asked = engine.generate([(*problem.tokens, *GOOD) for problem in PROBLEMS], SAMPLING, 5)
    plain = engine.generate([problem.tokens for problem in PROBLEMS], SAMPLING, 5)
    texts = [[sample.text for sample in record.samples] for record in measured]
    assert texts == [CODEC.text([rollout.tokens for rollout in group]) for group in asked]
    assert texts != [CODEC.text([rollout.tokens for rollout in group]) for group in plain]
    assert set(seen) == {problem.tokens for problem in PROBLEMS}


def test_served_as_a_chat_model_a_prompt_becomes_the_ids_that_were_learned(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(exported(tmp_path / "policy"))
    for text, problem in zip(TEXTS, PROBLEMS, strict=True):
        turn = [{"role": "user", "content": text}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        assert tuple(tokenizer(whole, add_special_tokens=False)["input_ids"]) == (*problem.tokens, *GOOD)
