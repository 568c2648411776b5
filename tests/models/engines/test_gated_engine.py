"""A policy with a selective gate: each token comes from the policy or the reference, as the gate decides."""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import Engine, EngineSettings, Sampling
from models.engines.gated_engine import GatedEngine
from models.engines.open_engine import open_engine
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.parts.advantage.selective import Selective
from models.parts.rollouts.gated import Gated
from models.policies.build import LoraSettings, with_adapter
from models.policies.folder import save_model_folder
from models.policies.use import read_use
from models.policies.weights import plain_model
from models.text.encoding import Codec
from tests.support.tiny_models import PROMPTS, contents, plain_log_probs, tiny_policy, word_tokenizer

SETTINGS = EngineSettings(name="transformers", precision="float32")
SAMPLING = Sampling(max_tokens=8, samples=4)


def exported(folder: Path, odds: float, weights: float = 0.0) -> Path:
    """Write policy, reference and a gate of given log-odds as at the end of a run; return the policy's folder."""
    policy, reference = (tiny_policy(torch.float32, seed=seed, spread=3.0) for seed in (0, 1))
    gate = Selective().accompany(policy)
    head: Any = gate.model
    with torch.no_grad():
        head.bias.fill_(odds)
        head.weight.copy_(
            torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(5)) * (weights or 1e-12)
        )
    optimiser = torch.optim.SGD(policy.parameters())
    learner = Learner(policy, optimiser, reference, None, None, MODEL_DISTRIBUTION, companions={"gate": gate})
    save_model_folder(reference, word_tokenizer(), folder / "start")
    codec = Codec(word_tokenizer())

    def beside(into: Path) -> None:
        Gated().export(learner, codec, folder / "start", into)

    save_model_folder(policy, word_tokenizer(), folder / "policy", beside)
    return folder / "policy"


def opened(folder: Path) -> Engine:
    return open_engine(folder, SETTINGS, longest=64, end=1, seed=0, dtype=torch.float32)


@pytest.mark.parametrize(("odds", "writer"), [(40.0, "policy"), (-1000.0, "start")])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_where_the_gate_is_certain_the_completions_are_those_of_the_one_that_writes(
    tmp_path: Path, odds: float, writer: str, temperature: float
) -> None:
    folder = exported(tmp_path, odds)
    sampling = Sampling(max_tokens=8, samples=4 if temperature else 1, temperature=temperature)
    engine, alone = opened(folder), TransformersEngine(tmp_path / writer, SETTINGS, end=1, dtype=torch.float32)
    completions, wanted = engine.generate(PROMPTS, sampling, 3), alone.generate(PROMPTS, sampling, 3)
    assert [[completion.tokens for completion in group] for group in completions] == [
        [completion.tokens for completion in group] for group in wanted
    ]


def test_in_between_every_token_comes_from_the_one_whom_the_gate_chose_and_both_have_their_turns(
    tmp_path: Path,
) -> None:
    folder = exported(tmp_path, 0.0, weights=0.2)
    engine = GatedEngine(folder, SETTINGS, end=1, dtype=torch.float32)
    made = [
        (prompt, completion)
        for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, SAMPLING, 3), strict=True)
        for completion in group
    ]
    sequences = Sequences([prompt for prompt, _ in made], [completion.tokens for _, completion in made])
    with torch.no_grad():
        said = [plain_log_probs(tiny_policy(torch.float32, seed=seed, spread=3.0), sequences) for seed in (0, 1)]
    turns = set()
    for (_, completion), policy, reference in zip(made, *said, strict=True):
        by_first = torch.tensor(completion.by_first)
        turns.update(completion.by_first)
        torch.testing.assert_close(
            completion.log_probs, torch.where(by_first, policy.cpu(), reference.cpu()), rtol=1e-3, atol=1e-3
        )
    assert turns == {True, False}
    first, again = (contents(engine.generate(PROMPTS, SAMPLING, 3)) for _ in range(2))
    assert first == again


def test_at_temperature_zero_the_likelier_writer_writes(tmp_path: Path) -> None:
    greedy = Sampling(max_tokens=6, temperature=0.0)
    for odds, writer in ((0.3, "policy"), (-0.3, "start")):
        folder = exported(tmp_path / writer, odds)
        alone = TransformersEngine(tmp_path / writer / writer, SETTINGS, end=1, dtype=torch.float32)
        completions, wanted = opened(folder).generate(PROMPTS, greedy, 0), alone.generate(PROMPTS, greedy, 0)
        assert [group[0].tokens for group in completions] == [group[0].tokens for group in wanted]


def test_with_an_adapter_the_reference_is_the_model_that_the_run_began_with(tmp_path: Path) -> None:
    start = tiny_policy(torch.float32, seed=1, spread=3.0)
    save_model_folder(start, word_tokenizer(), tmp_path / "start")
    policy: Any = with_adapter(start, LoraSettings(rank=2), seed=0)
    gate = Selective().accompany(policy)
    optimiser = torch.optim.SGD(policy.parameters())
    learner = Learner(
        policy, optimiser, None, policy.disable_adapter, None, MODEL_DISTRIBUTION, companions={"gate": gate}
    )
    codec = Codec(word_tokenizer())
    save_model_folder(
        plain_model(policy),
        word_tokenizer(),
        tmp_path / "policy",
        lambda into: Gated().export(learner, codec, tmp_path / "start", into),
    )
    assert read_use(tmp_path / "policy").gated
    for name, value in GatedEngine(tmp_path / "policy", SETTINGS, end=1).reference.state_dict().items():
        assert torch.equal(value.float(), tiny_policy(torch.float32, seed=1, spread=3.0).state_dict()[name]), name


def test_a_missing_gate_or_broken_use_is_one_line(tmp_path: Path) -> None:
    folder = exported(tmp_path, 0.0)
    (folder / "gate" / "gate.safetensors").unlink()
    with pytest.raises(UserError, match=r"gate\.safetensors: the gate cannot be read"):
        GatedEngine(folder, SETTINGS, end=1, dtype=torch.float32)
    (folder / "use.json").write_text('{"later": 1}')
    with pytest.raises(UserError, match=r"use\.json: it does not say how the policy is used"):
        opened(folder)
