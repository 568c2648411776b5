"""Requests, completions and weights as arrays: they come back unchanged, the weights in the engine's precision."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.base.errors import UserError
from models.base.seeds import completion_seed
from models.engines import arrays
from models.engines.arrays import GeneratedArrays, RequestArrays, Rows, weight_parts
from models.engines.decoding_loop import Switched
from models.engines.engine import CompletionRequest, EngineSettings, Generated, TokenSampling
from models.engines.hosted import HostedEngine, Order
from models.engines.transformers_engine import TransformersEngine
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from tests.support.tiny_models import PROMPTS, SEQUENCES, contents, tiny_policy, word_tokenizer

REQUESTS = [
    CompletionRequest(prompt, completion_seed(5, place, number), room, (7,) * number)
    for place, prompt in enumerate([*PROMPTS, PROMPTS[0]])
    for number, room in enumerate((12, 3, 2**31)[: 1 + place % 3])
]


def test_asks_come_back_as_they_were_and_a_prompt_travels_once_for_its_neighbours() -> None:
    packed = RequestArrays.of([*REQUESTS, CompletionRequest((3, 4), 2**63 - 1, 1)])
    assert packed.requests() == [*REQUESTS, CompletionRequest([3, 4], 2**63 - 1, 1)]
    assert packed.prompts.lists() == [*PROMPTS, PROMPTS[0], [3, 4]]
    assert RequestArrays.of([]).requests() == []


@pytest.mark.parametrize("log_probs", [True, False])
@pytest.mark.parametrize("turns", [True, False])
def test_completions_come_back_to_the_last_bit_each_with_memory_of_its_own(log_probs: bool, turns: bool) -> None:
    torch.manual_seed(0)
    made: list[Generated] = []
    for length in (3, 1, 40):
        tokens = tuple(range(length))
        values = torch.randn(length) if log_probs else None
        by_first = tuple(number % 2 == 0 for number in tokens)
        spans = ((0, 4), (2, 5))[: length - 1]
        plain = Generated(tokens, values, length != 3, versions=spans)
        made.append(Switched(tokens, values, True, by_first) if turns else plain)
    back = GeneratedArrays.of(made).completions()
    assert contents(back) == contents(made) and [type(part) for part in back] == [type(part) for part in made]
    values_of = [completion.log_probs for completion in back if completion.log_probs is not None]
    assert len(values_of) == (len(made) if log_probs else 0)
    assert all(values.untyped_storage().nbytes() == 4 * len(values) for values in values_of)
    assert GeneratedArrays.of([]).completions() == []


def test_rows_keep_what_an_engine_says_to_the_last_bit() -> None:
    said = [[0.1, -1e-300], [], [float(np.float32(-0.3))]]
    assert Rows.of(said, float).lists() == said and Rows.of([]).lists() == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_as_the_engine_rounds_them_in_parts_that_hold_each_once(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PART_BYTES", 20_000)
    weights = {**tiny_policy(torch.float32).state_dict(), "steps": torch.tensor([3, 2**40])}
    parts = list(weight_parts(weights.items(), dtype))
    assert len(parts) > 3 and all(sum(array.bits.nbytes for array in part[:-1]) < 20_000 for part in parts)
    back = {array.name: array.tensor() for part in parts for array in part}
    assert list(back) == list(weights)
    for name, tensor in weights.items():
        assert torch.equal(back[name], tensor.cpu().to(dtype) if tensor.is_floating_point() else tensor)
        assert back[name].dtype == (dtype if tensor.is_floating_point() else tensor.dtype)


def test_an_array_that_may_only_be_read_is_a_weight_without_a_copy_and_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    array = next(weight_parts([("w", torch.ones(3))], torch.float32))[0]
    array.bits.flags.writeable = False
    assert array.tensor().data_ptr() == array.bits.__array_interface__["data"][0] and not recwarn.list


def test_a_hosted_engine_says_what_the_engine_says_and_which_weights_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    settings, drawing = EngineSettings(name="transformers", precision="float32"), TokenSampling(temperature=1.5)
    requests = [ask for ask in REQUESTS if ask.max_tokens < 64]
    hosted = HostedEngine()
    about = hosted.open(Order(folder, settings, 64, 1, torch.float32, False))
    engine = TransformersEngine(folder, settings, end=1)
    assert (about.vocabulary, about.longest) == (engine.vocabulary, None)
    for version, seed in ((0, 0), (3, 1), (8, 2)):
        if version:
            policy = tiny_policy(torch.float32, seed=seed)
            engine.load(merged_weights(policy))
            for part in weight_parts(merged_weights(policy), torch.float32):
                hosted.receive(part)
            assert hosted.load(version) == version
        made, of = hosted.complete(RequestArrays.of(requests), drawing)
        assert of == version and contents(made.completions()) == contents(engine.complete(requests, drawing))
        scores, of = hosted.score(Rows.of(SEQUENCES.prompts), Rows.of(SEQUENCES.completions))
        assert of == version and scores.lists() == engine.score(SEQUENCES.prompts, SEQUENCES.completions)
    with pytest.raises(UserError, match=r"^prompt 0 holds token id 99"):
        hosted.score(Rows.of([[99]]), Rows.of([[1]]))
