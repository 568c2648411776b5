"""Parts of installed packages: found by entry points, identified in a step's key, and harmless if they are broken."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.method import plugins, registry
from models.method.plugins import faults, plugin_of, source_hash, source_of
from models.method.registry import NESTED_SLOTS, SLOTS, parts, slot_type
from models.parts.rollouts import tree_search
from models.recipes.catalogue import as_pages, as_text, entries
from models.recipes.json_schema import recipe_schema
from models.recipes.load import load_recipe
from models.recipes.schema import recipe_type
from models.recipes.schema_file import FILE, current_schema
from tasks.runner.contents import content_of

ROOT = Path(__file__).resolve().parents[3]
EVERY = tuple(SLOTS | NESTED_SLOTS)
REWARD = '''"""Rewards of polite completions."""

from torch import Tensor, tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward


@part("politeness")
class Politeness(Reward):
    """One for a completion that has the word `please`."""

    bonus: Number = 1.0
    """Reward of a polite completion."""

    def __call__(self, resources: RunResources, rollouts: list) -> Tensor:
        """Compute values before weighting, [completions]."""
        return tensor([self.bonus for _ in rollouts])
'''
BROKEN = {
    "raises": ("rewards.politeness", "raise RuntimeError('no licence')", "raises RuntimeError: no licence"),
    "cannot be imported": ("rewards.politeness", "import nosuch_module", "raises ModuleNotFoundError: .*nosuch_module"),
    "ends the process": ("rewards.politeness", "import sys; sys.exit(3)", r"importing polite.* called sys\.exit\(3\)"),
    "is no Python": ("rewards.politeness", "def", "raises SyntaxError: invalid syntax"),
    "registers nothing": ("rewards.politeness", "A = 1", "polite registers no part 'politeness' of the slot rewards"),
    "registers and fails": ("rewards.politeness", f"{REWARD}\nraise ValueError('late')", "raises ValueError: late"),
    "breaks the contract": (
        "rewards.politeness",
        REWARD.replace("bonus: Number", "bonus: float"),
        r"raises TypeError: polite: Politeness\.bonus: a number needs bounds",
    ),
    "has a taken name": ("rewards.coin", REWARD, "the slot has a part of this name already, from models.parts.rewards"),
    "has an unknown slot": (
        "prizes.politeness",
        REWARD,
        "'prizes.politeness' is not SLOT.NAME; the slots are rollouts",
    ),
    "has no slot": ("politeness", REWARD, "'politeness' is not SLOT.NAME"),
}


def install(folder: Path, modules: Mapping[str, str], points: Mapping[str, str], version: str = "1.2") -> None:
    """Install a package `polite-rewards` in `folder`: its modules, METADATA and entry_points.txt."""
    plugins._declared.cache_clear()
    for name, text in modules.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    facts = folder / f"polite_rewards-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: polite-rewards\nVersion: {version}\n")
    lines = [f"{key} = {target}" for key, target in points.items()]
    (facts / "entry_points.txt").write_text("\n".join(["[rewardflow.parts]", *lines]) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on sys.path; parts that are imported from it are forgotten afterwards."""
    for slot in SLOTS | NESTED_SLOTS:
        parts(slot)
    loaded = set(sys.modules)
    monkeypatch.setattr(registry, "_PARTS", {slot: dict(known) for slot, known in registry._PARTS.items()})
    monkeypatch.setattr(plugins, "_imported", set())
    monkeypatch.setattr(plugins, "_faults", {})
    monkeypatch.syspath_prepend(tmp_path)
    recipe_type.cache_clear()
    yield tmp_path
    recipe_type.cache_clear()
    source_hash.cache_clear()
    for name in set(sys.modules) - loaded:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.rotating(of=6)
def test_a_part_of_an_installed_package_is_used_and_listed_like_one_of_the_project(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        site, {"polite/__init__.py": "", "polite/word.py": REWARD}, {"rewards.politeness": "polite.word:Politeness"}
    )
    monkeypatch.setattr(tree_search, "StepRewards", slot_type("rewards"))  # made at import, when packages are installed
    (site / "mine.yaml").write_text("extends: grpo\nrewards: [exact_answer, {name: politeness, bonus: 2}]\n")
    recipe = load_recipe(site / "mine.yaml")
    assert vars(recipe.rewards[1])["bonus"] == 2 and faults(EVERY) == []
    [entry] = entries("politeness")
    assert (entry.package, entry.file) == ("polite-rewards 1.2", "polite.word")
    assert "politeness" in as_text(entries("rewards"), False) and "[polite-rewards 1.2]" in as_text([entry], False)
    assert "package polite-rewards 1.2" in as_text([entry], True)
    assert not any("politeness" in page for page in as_pages().values())
    assert "politeness" in recipe_schema()["$defs"]["slot_rewards"]["discriminator"]["mapping"]
    with pytest.raises(UserError, match=r"rewards\.0\.bonuss: unknown key; did you mean bonus\?"):
        (site / "wrong.yaml").write_text("extends: grpo\nrewards: [{name: politeness, bonuss: 2}]\n")
        load_recipe(site / "wrong.yaml")


def test_package_version_and_source_are_part_of_a_steps_key(site: Path) -> None:
    install(site, {"polite/__init__.py": "", "polite/word.py": REWARD}, {"rewards.politeness": "polite.word"})
    part = parts("rewards")["politeness"]()
    package, version, digest = content_of(part)["installed package"]
    assert (package, version) == ("polite-rewards", "1.2") and len(digest) == 64
    assert "installed package" not in content_of(parts("rewards")["coin"]())
    (site / "polite" / "words.txt").write_text("please\n")  # a file of the package that the part may read
    assert content_of(part)["installed package"][2] == digest  # of the source that was imported
    source_hash.cache_clear()
    changed = content_of(part)["installed package"][2]
    assert changed != digest
    (site / "polite" / "__pycache__").mkdir(exist_ok=True)
    (site / "polite" / "__pycache__" / "word.pyc").write_bytes(b"bytecode")
    source_hash.cache_clear()
    assert content_of(part)["installed package"][2] == changed


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("key", "text", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_package_is_one_line_for_its_own_part_and_nothing_for_others(
    key: str, text: str, reason: str, site: Path
) -> None:
    before = {slot: list(parts(slot)) for slot in SLOTS | NESTED_SLOTS}
    install(site, {"polite.py": text}, {key: "polite"})
    assert {slot: list(parts(slot)) for slot in SLOTS | NESTED_SLOTS} == before
    [line] = faults(EVERY)
    assert re.match(f"polite-rewards 1.2 has the part {key}, which cannot be used: .*{reason}", line), line
    assert "\n" not in str(UserError(line))
    assert faults(EVERY, key.rpartition(".")[2]) == [line] and faults(EVERY, "grpo") == []
    if key != "rewards.coin":
        with pytest.raises(UserError, match=re.escape(line[:80])):
            entries("politeness")


def test_only_a_recipe_that_names_a_broken_part_is_refused(site: Path) -> None:
    install(site, {"polite.py": BROKEN["registers and fails"][1]}, {"rewards.politeness": "polite"})
    assert load_recipe("grpo").name == "grpo"
    (site / "mine.yaml").write_text("extends: grpo\nrewards: [politeness]\n")
    refusal = (
        r"mine\.yaml: rewards\.0\.name: polite-rewards 1\.2 has the part rewards\.politeness, which cannot be used: "
    )
    with pytest.raises(UserError, match=refusal + ".*ValueError: late"):
        load_recipe(site / "mine.yaml")


@pytest.mark.rotating(of=6)
def test_a_schema_without_the_part_of_a_broken_package_is_not_stored(site: Path) -> None:
    install(site, {"polite.py": "import nosuch_module"}, {"rewards.politeness": "polite"})
    assert "slot_rewards" in current_schema(site / "home")["$defs"]
    assert not (site / "home" / FILE).exists()


def test_the_source_of_a_module_is_its_topmost_package(site: Path) -> None:
    for folder in ("shared/polite", "whole/inner"):
        (site / folder).mkdir(parents=True)
    for file in ("shared/polite/__init__.py", "whole/__init__.py", "whole/inner/__init__.py", "single.py"):
        (site / file).write_text("raise RuntimeError('imported')\n")
    assert source_of("shared.polite.word") == site / "shared" / "polite"  # `shared` has no __init__.py
    assert source_of("whole.inner.word") == site / "whole"
    assert source_of("single") == site / "single.py"
    assert source_of("nosuch.word") is None and source_hash("nosuch.word") == ""
    assert plugin_of(parts("rewards")["coin"]) is None


@pytest.mark.rotating(of=6)
def test_the_command_lists_parts_of_packages_and_reports_the_broken_one_last(tmp_path: Path) -> None:
    points = {"rewards.politeness": "polite", "rewards.rudeness": "rude", "tool.lamp": "lamp"}
    install(tmp_path, {"polite.py": REWARD, "rude.py": "1 / 0", "lamp.py": "1 / 0"}, points)
    done = subprocess.run(
        [sys.executable, "-m", "flows.command_line", "parts", "rewards"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "REWARDFLOW_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert re.search(
        r"^  politeness +One for a completion .* \[polite-rewards 1\.2\]$", done.stdout, flags=re.MULTILINE
    )
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "error: polite-rewards 1.2 has the part rewards.rudeness, which cannot be used: importing rude raises "
        "ZeroDivisionError: division by zero"
    ]
