"""The registry of parts: a part is found by its file, and a part that breaks the contract is refused at import."""

import dataclasses
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from models.base import bounds
from models.method import registry
from models.method.advantage import Advantage, CompletionAdvantage
from models.method.objective import Objective
from models.method.reference import Reference
from models.method.registry import NESTED_SLOTS, SLOTS, Slot, part, parts
from models.method.resources import RunResources
from models.method.reward import Reward, TokenReward
from models.method.rollout import Rollout
from models.method.rollout_source import Rollouts
from models.method.scored import Scored
from models.method.select import Select
from models.method.slot_part import SlotPart
from models.method.slots import Slots
from models.method.token_batch import TokenBatch

ROOT = Path(__file__).resolve().parents[3]
BASES: dict[Slot, type[SlotPart]] = {
    cls.slot: cls for cls in (Rollouts, Reward, Select, Advantage, Objective, Reference)
}


@pytest.fixture(autouse=True)
def same_parts_after(monkeypatch: pytest.MonkeyPatch) -> None:
    for slot in SLOTS:
        parts(slot)  # import the parts now, so that only those of a test are removed after it
    monkeypatch.setattr(registry, "_PARTS", {slot: dict(known) for slot, known in registry._PARTS.items()})


def test_every_slot_has_a_class_a_package_and_a_place_among_the_parts_of_a_recipe() -> None:
    assert list(BASES) == list(SLOTS) == [field.name for field in dataclasses.fields(Slots)]
    assert all(importlib.import_module(info.package).__doc__ for info in (SLOTS | NESTED_SLOTS).values())


@pytest.mark.parametrize("slot", SLOTS)
def test_every_slot_has_parts_that_are_frozen_of_its_class_and_know_their_name(slot: Slot) -> None:
    known = parts(slot)
    assert known and list(known) == sorted(known) and SLOTS[slot].default in known
    for name, made in known.items():
        built = made()
        assert built.name == name and isinstance(built, BASES[slot])
        with pytest.raises(dataclasses.FrozenInstanceError):
            built.name = "other"


def write(folder: Path, *lines: str) -> None:
    """Write a file with a reward called brevity."""
    text = [
        '"""Rewards short completions."""',
        "from typing import Annotated",
        "from pydantic import Field",
        "from models.method.slots import Reward",
        "from models.method.registry import part",
        "@part('brevity')",
        "class Brevity(Reward):",
        '    """The shorter, the better."""',
        *lines,
        "    def __call__(self, resources, rollouts): ...",
    ]
    (folder / "brevity.py").write_text("\n".join(text) + "\n")


def load(folder: Path, then: str) -> tuple[list[str], list[str]]:
    """Return the words that a process with `folder` among the rewards prints, and the last line of its error."""
    code = f"import models.parts.rewards; models.parts.rewards.__path__.append({str(folder)!r})\n{then}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    return done.stdout.split(), done.stderr.strip().splitlines()[-1:]


@pytest.mark.rotating(of=6)
def test_a_file_that_leaves_when_it_is_imported_is_one_line_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "brevity.py").write_text("import sys\nsys.exit(0)\n")
    out, error = load(tmp_path, "from models.method.registry import parts; parts('rewards'); print('on')")
    assert not out
    assert (
        f"models.parts.rewards.brevity: importing it called sys.exit(0) ({tmp_path}/brevity.py, line 2); put"
        in error[0]
    )


@pytest.mark.rotating(of=6)
def test_a_new_file_is_a_part_by_itself(tmp_path: Path) -> None:
    """A separate process adds the folder to the package's path. The part needs no registration."""
    write(tmp_path)
    then = (
        "from models.recipes.schema import recipe_type\n"
        "recipe = recipe_type().model_validate({'name': 'r', 'rewards': {'name': 'brevity', 'weight': 2}})\n"
        "print(recipe.rewards[0].name, recipe.rewards[0].weight, recipe.rewards[0].label)\n"
    )
    assert load(tmp_path, then) == (["brevity", "2.0", "brevity"], [])


IMPORT = "from models.method.registry import parts; parts('rewards')"


@pytest.mark.rotating(of=6)
def test_a_file_among_the_parts_that_holds_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lengths.py").write_text("def length(text): return len(text)\n")
    assert load(tmp_path, IMPORT)[1] == [
        "TypeError: models.parts.rewards.lengths stands among the parts of rewards and holds none; "
        "its place is models.parts.shared"
    ]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["    needs_answer = True"], "Brevity.needs_answer: no trait of Reward; did you mean needs_answers?"),
        (["    @property", "    def by_tokens(self): return True"], "Brevity.by_tokens: no trait of Reward; did"),
        (["    def exprot(self): ..."], "Brevity.exprot: no trait of Reward"),
        (["    share: float = 0.5", '    """Of a whole."""'], "Brevity.share: a number needs bounds"),
        (["    share: float | None = None", '    """Of a whole."""'], "Brevity.share: a number needs bounds"),
        (["    ks: tuple[int, ...] = ()", '    """Sizes."""'], "Brevity.ks: a number needs bounds"),
        (["    share: Annotated[float, Field(ge=0)] = 0.5"], "Brevity.share: a setting needs a docstring"),
        (["    share: Annotated[float, Field(ge=0)]", '    """Share."""'], "Brevity.share: a setting needs a default"),
    ],
)  # fmt: skip
def test_what_a_part_says_and_nobody_knows_is_refused_at_import(
    lines: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *lines)
    spec = importlib.util.spec_from_file_location("brevity", tmp_path / "brevity.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "brevity", module)
    with pytest.raises(TypeError) as raised:
        assert spec.loader is not None
        spec.loader.exec_module(module)
    assert str(raised.value).startswith(f"brevity: {complaint}")


def test_a_part_or_file_without_a_docstring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="Quiet: a part needs a docstring, which the catalogue"):

        @part("quiet")
        class Quiet(Reward):
            def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Any: ...

    monkeypatch.setattr(sys.modules[__name__], "__doc__", None)
    with pytest.raises(TypeError, match="Explained: its file needs a docstring"):

        @part("explained")
        class Explained(Reward):
            """A reward with a docstring, in a file without one."""

            def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Any: ...


def test_an_objective_without_a_level_is_refused() -> None:
    with pytest.raises(TypeError, match="level is missing, which Objective asks for"):

        @part("flat")
        class Flat(Objective):
            def __call__(self, log_prob: Tensor, batch: TokenBatch) -> Any: ...


@pytest.mark.parametrize(
    ("base", "trait", "complaint"),
    [
        (Advantage, {"companion": "critic"}, "companion is critic, but accompany is missing"),
        (Reference, {"moves": True}, "moves is True, but follow is missing"),
        (Reward, {"by_token": True}, "by_token is True, but tokens is missing"),
        (CompletionAdvantage, {}, "of_completions is missing, which CompletionAdvantage asks for"),
        (TokenReward, {}, "tokens is missing, which TokenReward asks for"),
    ],
)
def test_what_promises_a_method_needs_it(base: type[SlotPart], trait: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        part("idle")(type("Idle", (base,), {"__call__": lambda self, *given: None, "__annotations__": {}, **trait}))


def test_a_part_that_does_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="__call__ is missing, which Select asks for"):

        @part("idle")
        class Idle(Select):
            pass


def test_bounds_may_stand_around_a_union_and_in_a_name_for_a_type() -> None:
    @part("bounded")
    class Bounded(Select):
        """Settings with bounds."""

        share: bounds.Share | None = None
        """A share of a whole."""
        counts: tuple[bounds.Positive, ...] = ()
        """Numbers of things."""
        exact: bool = False
        """Whether the result is exact."""

        def __call__(self, scored: Scored) -> Any: ...

    assert Bounded().share is None


def test_two_parts_of_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two parts are called 'exact_answer' in the slot rewards"):

        @part("exact_answer")
        class Impostor(Reward):
            def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Any: ...


def test_the_same_name_may_stand_in_two_slots() -> None:
    @part("grpo")
    class Other(Select):
        """A part of `select` with the name of an objective."""

        def __call__(self, scored: Scored) -> Any: ...

    assert parts("select")["grpo"] is Other and parts("objective")["grpo"] is not Other
