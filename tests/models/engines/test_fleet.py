"""A fleet of engines: it gives the tokens of one engine, checks their weights, and replaces an engine that fails."""

import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.seeds import completion_seed
from models.engines.canary import TOLERANCE, canary_gap
from models.engines.engine import CompletionRequest, Engine, EngineSettings, Generated, Sampling, TokenSampling
from models.engines.fleet import Fleet, groups_of, shares
from models.engines.transformers_engine import TransformersEngine
from models.engines.vllm_engine import VllmEngine
from models.policies.build import LoraSettings, with_adapter
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from tests.support.tiny_loops import SCHEDULE, new_learner, run, same_weights, save_start
from tests.support.tiny_models import NO_VLLM, PROMPTS, SEQUENCES, contents, tiny_policy, word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

END = 1
DRAWING = TokenSampling(temperature=1.5)
SAMPLING = Sampling(max_tokens=12, samples=3, temperature=1.5)
REQUESTS = [
    CompletionRequest(prompt, completion_seed(5, place, number), room, (7,) * number)
    for place, prompt in enumerate(PROMPTS)
    for number, room in enumerate((12, 3, 20)[: 1 + place % 3])
]


def untied(policy: Any) -> Any:
    """Give the policy an output head that differs from its embeddings, and return it."""
    policy.config.tie_word_embeddings = False
    policy.lm_head.weight = nn.Parameter(policy.lm_head.weight.detach().flip(0).clone())
    return policy


def adapted(policy: Any) -> Any:
    return with_adapter(policy, LoraSettings(rank=4), seed=0)


def moved(policy: Any) -> Any:
    """Change every parameter of the policy, so that LoRA's output is not zero either, and return it."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 + 0.3 * parameter.std().nan_to_num(1.0)))
    return policy


@pytest.fixture(scope="module", params=["tied", pytest.param("untied", marks=pytest.mark.thorough)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("fleet") / request.param
    save_model_folder(policy_of(request.param), word_tokenizer(), target)
    return target


def policy_of(kind: str, seed: int = 0) -> Any:
    policy = tiny_policy(torch.float32, seed=seed)
    return untied(policy) if kind == "untied" else policy


class Mortal(TransformersEngine):
    """An engine that fails at the end of a generation, `deaths` times over all its instances."""

    deaths = 0
    made = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        type(self).made += 1

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        completions = super().complete(requests, drawing)
        if Mortal.deaths:
            Mortal.deaths -= 1
            raise ConnectionResetError("the process of the engine ended")
        return completions


class Stale(TransformersEngine):
    """An engine that takes the version of new weights, but not the weights."""

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        self.version = version


class Forgetful(TransformersEngine):
    """An engine that takes neither new weights nor their version."""

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        pass


def starts(folder: Path, *kinds: type[TransformersEngine]) -> list[Callable[[], Engine]]:
    return [partial(kind, folder, EngineSettings(precision="float32"), end=END) for kind in kinds]


@pytest.fixture
def open_fleet(folder: Path) -> Iterator[Callable[..., Fleet]]:
    opened = []

    def open_them(*kinds: type[TransformersEngine]) -> Fleet:
        opened.append(Fleet(starts(folder, *kinds), torch.float32))
        return opened[-1]

    yield open_them
    for fleet in opened:
        fleet.close()


def test_one_engine_and_two_and_three_and_more_than_there_are_prompts_give_the_same_tokens(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    alone = TransformersEngine(folder, EngineSettings(precision="float32"), end=END)
    requests = [*REQUESTS, CompletionRequest(PROMPTS[0], 77, 5)]  # a repeated prompt that does not follow its equals
    wanted = alone.complete(requests, DRAWING)
    scores = alone.score(SEQUENCES.prompts, SEQUENCES.completions)
    for count in (1, 2, 3, len(PROMPTS) + 2):
        fleet = open_fleet(*[TransformersEngine] * count)
        assert len(fleet.members()) == count
        for made, given in zip(fleet.complete(requests, DRAWING), wanted, strict=True):
            assert (made.tokens, made.finished) == (given.tokens, given.finished)
            torch.testing.assert_close(made.log_probs, given.log_probs, rtol=0, atol=1e-5)
        said = fleet.score(SEQUENCES.prompts, SEQUENCES.completions)
        assert [len(row) for row in said] == [len(row) for row in scores]
        torch.testing.assert_close(torch.tensor([*chain(*said)]), torch.tensor([*chain(*scores)]), rtol=0, atol=1e-5)
        groups = fleet.generate(PROMPTS, SAMPLING, 4)
        assert [[made.tokens for made in group] for group in groups] == [
            [made.tokens for made in group] for group in alone.generate(PROMPTS, SAMPLING, 4)
        ]


def test_a_fleet_that_is_asked_for_nothing_says_nothing(open_fleet: Callable[..., Fleet]) -> None:
    fleet = open_fleet(TransformersEngine, TransformersEngine)
    assert fleet.complete([], DRAWING) == [] and fleet.score([], []) == []


def test_every_group_goes_to_one_engine_and_none_has_more_than_a_fair_share_and_a_group() -> None:
    chance = random.Random(0)
    for _ in range(200):
        drawn = [([chance.randrange(9)] * chance.randint(1, 40), chance.randint(1, 6)) for _ in range(20)]
        prompts = [prompt for prompt, size in drawn for _ in range(size)]
        lengths = [chance.randint(1, 50) for _ in prompts]
        count = chance.randint(1, 7)
        groups = groups_of(prompts)
        assert [*chain(*groups)] == list(range(len(prompts)))
        assert [prompts[group[0]] for group in groups] == [prompt for prompt, _ in groupby(prompts)]
        given = shares(groups, prompts, lengths, count)
        assert len(given) == count and sorted([*part] for part in chain(*given)) == groups
        costs = [[len(prompts[group[0]]) + sum(lengths[at] for at in group) for group in share] for share in given]
        whole = [*chain(*costs)]
        assert max(sum(cost) for cost in costs) <= sum(whole) / count + max(whole)


def test_where_each_engine_has_a_batch_what_they_say_is_what_one_says_to_the_last_bit(folder: Path) -> None:
    chance = random.Random(1)
    requests = [
        CompletionRequest(prompt, completion_seed(9, place, number), 12)
        for place, prompt in enumerate([chance.randrange(2, 24)] * chance.randint(1, 30) for _ in range(24))
        for number in range(4)
    ]
    settings = EngineSettings(max_sequences=16, precision="float32")
    start = partial(TransformersEngine, folder, settings, end=END)
    wanted = contents(start().complete(requests, DRAWING))
    for count in (2, 3, 6):
        fleet = Fleet([start] * count, torch.float32, most=settings.max_sequences)
        assert contents(fleet.complete(requests, DRAWING)) == wanted
        fleet.close()


@pytest.mark.parametrize("lora", [False, True])
def test_every_parameter_moved_then_handed_over_canary_under_1e_5_on_each_engine(
    folder: Path, open_fleet: Callable[..., Fleet], lora: bool
) -> None:
    fleet = open_fleet(*[TransformersEngine] * 3)
    policy = adapted(policy_of(folder.name)) if lora else policy_of(folder.name)
    before = {name: value.clone() for name, value in policy.named_parameters()}
    policy = moved(policy)
    assert all(not torch.equal(value, before[name]) for name, value in policy.named_parameters() if value.requires_grad)
    assert all(canary_gap(member, policy, SEQUENCES, None) > TOLERANCE[None] for member in fleet.members())
    fleet.load(merged_weights(policy))
    assert all(canary_gap(member, policy, SEQUENCES, None) < 1e-5 for member in fleet.members())


def test_a_head_that_is_left_as_it_was_trips_the_canary_and_one_that_is_left_out_is_refused(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    fleet = open_fleet(TransformersEngine, TransformersEngine)
    policy = policy_of(folder.name)
    head = policy.lm_head.weight.detach().clone()
    weights = dict(merged_weights(moved(policy)))
    fleet.load((weights | {"lm_head.weight": head}).items())
    assert canary_gap(fleet, policy, SEQUENCES, None) > TOLERANCE[None]
    weights.pop("lm_head.weight")
    with pytest.raises(ValueError, match=r"not the model's: \['lm_head.weight'\]"):
        fleet.load(weights.items())


@NO_VLLM
@pytest.mark.thorough
def test_a_head_that_is_left_out_trips_the_canary_of_vllm_which_takes_the_rest(folder: Path) -> None:
    engine = VllmEngine(folder, EngineSettings(max_sequences=8, precision="float32"), longest=64, end=END, seed=0)
    try:
        policy = moved(policy_of(folder.name))
        weights = dict(merged_weights(policy))
        engine.load((name, value) for name, value in weights.items() if name != "lm_head.weight")
        assert canary_gap(engine, policy, SEQUENCES, None) > TOLERANCE[None]
        engine.load(weights.items())
        assert canary_gap(engine, policy, SEQUENCES, None) < 1e-5
    finally:
        engine.close()


def test_the_canary_sees_the_one_engine_of_a_fleet_that_has_other_weights(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    policy = moved(policy_of(folder.name))
    for kinds in ((Stale, TransformersEngine), (TransformersEngine, Stale)):
        fleet = open_fleet(*kinds)
        fleet.load(merged_weights(policy))
        gaps = [canary_gap(member, policy, SEQUENCES, None) for member in fleet.members()]
        assert canary_gap(fleet, policy, SEQUENCES, None) == max(gaps) > TOLERANCE[None] > 1e-5 > min(gaps)


def test_an_engine_of_another_version_than_was_handed_over_last_is_one_clear_line(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    fleet = open_fleet(TransformersEngine, Forgetful)
    fleet.complete(REQUESTS, DRAWING)  # both engines have the weights of the folder
    with pytest.raises(UserError, match=r"^engine 2 of 2 has the weights of hand-over 0, but those of hand-over 1 "):
        fleet.load(policy_of(folder.name).state_dict().items())


def test_what_the_caller_numbers_is_what_the_fleet_says_and_two_hand_overs_of_a_number_are_two(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    fleet = open_fleet(TransformersEngine, TransformersEngine)
    for version in (5, 5):
        fleet.load(policy_of(folder.name).state_dict().items(), version)
    assert fleet.version == 5 and [member.version for member in fleet.members()] == [2, 2]


def test_an_engine_that_dies_is_replaced_with_the_weights_of_the_hand_over_and_the_same_tokens_come_out(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    policy = moved(policy_of(folder.name))
    fleet = open_fleet(Mortal, Mortal)
    fleet.load(merged_weights(policy))
    undisturbed = fleet.complete(REQUESTS, DRAWING)
    with torch.no_grad():
        policy.model.embed_tokens.weight.zero_()  # the learner changes its weights
    for deaths in (1, 2, 3):
        Mortal.deaths, before = deaths, Mortal.made
        with pytest.warns(UserWarning, match=r"it broke in generate \(ConnectionResetError: the process of the engine"):
            assert contents(fleet.complete(REQUESTS, DRAWING)) == contents(undisturbed)
        assert Mortal.made == before + deaths and Mortal.deaths == 0
    assert [member.version for member in fleet.members()] == [1, 1]


def test_a_prompt_that_no_engine_takes_is_named_by_its_place_among_all_and_starts_nothing_anew(
    open_fleet: Callable[..., Fleet],
) -> None:
    fleet = open_fleet(Mortal, Mortal, Mortal)
    before = Mortal.made
    with warnings.catch_warnings(), pytest.raises(UserError, match=r"^prompt 3 holds token id 99"):
        warnings.simplefilter("error")
        fleet.generate([[3], [4], [6], [5, 99]], SAMPLING, 0)
    with pytest.raises(UserError, match=r"^prompt 1 holds token id 99"):
        fleet.score([[3], [4]], [[1], [99]])
    assert Mortal.made == before


def test_where_one_engine_does_not_start_those_that_did_are_closed(folder: Path) -> None:
    closed = threading.Event()

    class Closing(TransformersEngine):
        def close(self) -> None:
            super().close()
            closed.set()

    with pytest.raises(UserError, match=r"nowhere: "):
        Fleet([*starts(folder, Closing), *starts(Path("nowhere"), TransformersEngine)], torch.float32)
    assert closed.wait(60)


def test_a_fleet_is_closed_while_its_engines_are_at_work_and_none_is_started_anew(
    folder: Path, open_fleet: Callable[..., Fleet]
) -> None:
    working, over = threading.Semaphore(0), threading.Event()

    class Busy(Mortal):
        made = 0

        def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
            working.release()
            over.wait(60)
            raise ConnectionResetError("the process of the engine ended")

        def close(self) -> None:
            super().close()
            over.set()

    fleet = open_fleet(Busy, Busy)
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            fleet.complete(REQUESTS, DRAWING)
        except BaseException as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert working.acquire(timeout=60) and working.acquire(timeout=60)
    fleet.close()
    asking.join(60)
    assert not asking.is_alive() and [type(error) for error in errors] == [ConnectionResetError] and Busy.made == 2
    fleet.close()


def test_a_loop_whose_engine_is_a_fleet_ends_with_the_weights_of_one_whose_engine_is_alone(tmp_path: Path) -> None:
    start = save_start(tmp_path / "start")

    def alone_in_batches(folder: Path, settings: EngineSettings, *, end: int) -> TransformersEngine:
        return TransformersEngine(folder, replace(settings, max_sequences=8), end=end)  # two batches in a round

    def fleet(folder: Path, settings: EngineSettings, *, end: int) -> Fleet:
        return Fleet([partial(alone_in_batches, folder, settings, end=end)] * 2, torch.float32, most=8)

    alone, diary = run(start, tmp_path / "alone", engine=alone_in_batches)
    several, diary_of_several = run(start, tmp_path / "several", engine=fleet)
    assert same_weights(alone, several) and diary.samples == diary_of_several.samples
    assert not same_weights(alone, new_learner(SCHEDULE))
