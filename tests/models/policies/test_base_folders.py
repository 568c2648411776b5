"""Folders and hub ids that cannot be a base: each is refused with one line before anything is loaded."""

import copy
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from pydantic import BaseModel, ValidationError, field_validator
from safetensors.torch import load_file, save_file

from models.base.errors import UserError
from models.policies.base_folder import NEW_POLICY_MODULES, check_base_folder, check_targets
from models.policies.build import (
    LoraSettings,
    SizeSettings,
    first_line,
    load_causal_model,
    new_policy,
    open_policy,
    with_adapter,
)
from models.policies.folder import check_model_folder, save_model_folder
from models.policies.hub import check_hub_id
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from tests.support.architectures import MODELS, built
from tests.support.tiny_models import tiny_policy, word_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "base"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    return folder


@pytest.fixture
def base(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "base"))


def config(**changed: object) -> Callable[[Path], None]:
    """Return a function that changes values in config.json; None removes a key."""

    def spoil(folder: Path) -> None:
        actual = json.loads((folder / "config.json").read_text()) | changed
        kept = {key: value for key, value in actual.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return spoil


def text(name: str, content: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(content)

    return spoil


def without(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def both(*spoilers: Callable[[Path], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for spoiler in spoilers:
            spoiler(folder)

    return spoil


def cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])


def reshaped(name: str, shape: tuple[int, ...]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        save_file(tensors | {name: torch.zeros(shape)}, folder / "model.safetensors", {"format": "pt"})

    return spoil


def sharded(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no tokenizer": (
        without("tokenizer.json", "tokenizer_config.json"),
        "base: no tokenizer, tokenizer.json is missing",
    ),
    "a config that is a list": (text("config.json", "[1, 2]"), "config.json: not a JSON object but a list"),
    "a config of many levels": (text("config.json", "[" * 5000), "config.json: not valid JSON"),
    "a config of no model": (config(model_type=None), "config.json: no model_type"),
    "a tokenizer that is a list": (text("tokenizer.json", "[]"), "tokenizer.json: not a JSON object but a list"),
    "a tokenizer without a model": (text("tokenizer.json", '{"model": [1]}'), "tokenizer.json: no model"),
    "a tokenizer that is broken": (text("tokenizer.json", '{"model": '), "tokenizer.json: not valid JSON"),
    "settings of a tokenizer that are text": (
        text("tokenizer_config.json", '"x"'),
        "tokenizer_config.json: not a JSON object",
    ),
    "weights cut short": (cut, "model.safetensors: cut short or damaged"),
    "weights that are text": (text("model.safetensors", "x" * 100), "model.safetensors: no safetensors file"),
    "a missing shard": (sharded, "model-2.safetensors is missing, which model.safetensors.index.json names"),
    "a wider config": (config(hidden_size=128), r"embed_tokens\.weight is 24 x 64, but config\.json asks for 24 x 128"),
    "a larger vocabulary": (
        config(vocab_size=50),
        r"embed_tokens\.weight is 24 x 64, but config\.json asks for 50 x 64",
    ),
    "more layers": (
        config(num_hidden_layers=3),
        "its weights have 2 layers, but num_hidden_layers of config.json is 3",
    ),
    "fewer layers": (
        config(num_hidden_layers=1),
        "its weights have 2 layers, but num_hidden_layers of config.json is 1",
    ),
    "other heads": (config(num_key_value_heads=2), r"k_proj\.weight is 32 x 64, but config\.json asks for 64 x 64"),
    "no heads": (config(num_attention_heads=0), "num_attention_heads is 0"),
    "a wider layer": (config(intermediate_size=65), r"(up|down)_proj\.weight is 64 x 64, but config\.json asks for "),
    "fewer embeddings than tokens": (
        both(config(vocab_size=20), reshaped("model.embed_tokens.weight", (20, 64))),
        "its tokenizer has 24 tokens, but its weights only 20 embeddings",
    ),
    "an adapter": (
        both(without("config.json"), text("adapter_config.json", "{}")),
        "config.json is missing; this is not a model folder; adapters are merged into their base first",
    ),
    "an adapter next to the weights": (
        both(text("adapter_config.json", "{}"), text("adapter_model.safetensors", "")),
        r"holds an adapter next to the weights of a model \(adapter_config\.json, adapter_model\.safetensors\)",
    ),
    "the config of an adapter next to the weights": (text("adapter_config.json", "{}"), r"\(adapter_config\.json\)"),
    "the weights of an adapter next to the weights": (
        text("adapter_model.safetensors", ""),
        r"\(adapter_model\.safetensors\), .* move these files away if the adapter is merged",
    ),
    "a pickled adapter next to the weights": (text("adapter_model.bin", ""), r"\(adapter_model\.bin\)"),
    "only the weights of an adapter": (
        both(text("adapter_model.safetensors", ""), without("model.safetensors")),
        r"\(adapter_model\.safetensors\)",
    ),
}


@pytest.mark.parametrize(("spoil", "says"), BAD.values(), ids=BAD)
def test_a_base_folder_that_cannot_begin_is_one_line(base: Path, spoil: Callable[[Path], None], says: str) -> None:
    check_base_folder(base)
    spoil(base)
    with pytest.raises(UserError, match=says) as refused:
        check_base_folder(base)
    assert str(base) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_of_every_architecture_is_taken_with_its_length_and_modules(name: str, tmp_path: Path) -> None:
    built(name, torch.float32).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    positions, modules = check_base_folder(tmp_path)
    assert positions == 128 and any(module.endswith(("q_proj", "qkv_proj", "c_attn")) for module in modules)


def recipe(tmp_path: Path, policy: str, rest: str = "") -> None:
    """Run the checks of a recipe that run before Prefect starts."""
    (tmp_path / "mine.yaml").write_text(f"policy: {policy}\nwarm_start: null\n{rest}")
    require_files(load_recipe(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("policy", "rest", "says"),
    [
        (
            "",
            "rollouts: {max_tokens: 64}",
            "rollouts.max_tokens is 64, but the policy reads 64 tokens at most, prompt in",
        ),
        (", chat: true", "", "its tokenizer has no chat template, which policy.chat asks for"),
        (
            ", lora: {targets: [q_projj]}",
            "",
            "policy.lora.targets: the policy has no module 'q_projj'; it has down_proj",
        ),
        (", lora: {targets: [all-linear]}", "", "the policy has no module 'all-linear'; write targets: all-linear"),
        (", lora: {targets: q_proj}", "", r"'q_proj' matches no module's whole name; write \[q_proj\]"),
        (", lora: {targets: '('}", "", r"'\(' is not a regular expression"),
        (", lora: {targets: []}", "", "policy.lora.targets: an empty list"),
        (", subnetwork: {masks: BASE/config.json}", "", "policy.subnetwork.masks: .*config.json: no safetensors file"),
    ],
)
def test_what_a_base_has_no_room_or_module_for_is_said_before_prefect_starts(
    base: Path, tmp_path: Path, policy: str, rest: str, says: str
) -> None:
    recipe(tmp_path, f"{{base: {base}}}", "rollouts: {max_tokens: 32}")
    with pytest.raises(UserError, match=says):
        policy = policy.replace("BASE", str(base))
        recipe(tmp_path, f"{{base: {base}{policy}}}", rest or "rollouts: {max_tokens: 32}")


def test_the_modules_of_a_new_policy_are_those_that_adapters_find() -> None:
    model = new_policy(SizeSettings(hidden=32, layers=1, heads=2, key_value_heads=1), word_tokenizer(), 0)
    matrices = {
        name for name, module in model.named_modules() if getattr(getattr(module, "weight", None), "ndim", 0) == 2
    }
    assert matrices == set(NEW_POLICY_MODULES)
    for targets in (("q_proj", "down_proj"), ".*mlp.up_proj", "all-linear"):
        check_targets(targets, NEW_POLICY_MODULES)
        assert with_adapter(copy.deepcopy(model), LoraSettings(targets=targets), 0) is not None


def test_the_check_reads_headers_and_loads_no_torch(base: Path) -> None:
    code = f"""import sys; from pathlib import Path; from models.policies.base_folder import check_base_folder
check_base_folder(Path({str(base)!r})); sys.exit(3 if "torch" in sys.modules or "transformers" in sys.modules else 0)"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---------------------------------------- hub ids


class _Hub(BaseHTTPRequestHandler):
    """A hub on loopback that has one model, a gated one, and one that causes a server error."""

    def do_HEAD(self) -> None:
        known = "/good/" in self.path
        self.send_response(200 if known else 403 if "/gated/" in self.path else 500 if "/ill/" in self.path else 404)
        if known:
            self.send_header("ETag", '"1"')
            self.send_header("X-Repo-Commit", "0" * 40)
        elif "/ill/" not in self.path:
            self.send_header("X-Error-Code", "GatedRepo" if "/gated/" in self.path else "RepoNotFound")
        self.send_header("Content-Length", "2")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def lies_at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    lies_at(f"http://127.0.0.1:{server.server_port}", monkeypatch)
    yield
    server.shutdown()
    server.server_close()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_hub_id_is_asked_for_once_and_quickly(hub: None) -> None:
    check_hub_id("good/model")
    check_hub_id(f"good/model@{COMMIT}")
    for base, says in (
        ("nobody/nothing", "no such folder here and no such model on the hub"),
        ("gated/model", "is gated; accept its terms"),
        ("ill/model", "policy.base: ill/model: the hub answers 500"),
    ):
        with pytest.raises(UserError, match=says):
            check_hub_id(base)


def test_a_hub_that_is_away_is_one_line(hub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lies_at("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(UserError, match=r"model is not a local folder .* the hub cannot be reached \(ConnectError\)"):
        check_hub_id("good/model")


def test_a_hub_id_without_a_network_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"policy\.base: Qwen/Nothing is not a local folder, .* HF_HUB_OFFLINE is set"):
        recipe(tmp_path, "{base: Qwen/Nothing}")


@pytest.mark.parametrize("base", ["a b", "a/b/c", "x" * 3000, "a\\0b", "~nobody-of-that-name/x", "s3://bucket/model"])
def test_what_is_neither_folder_nor_hub_id_is_one_line(tmp_path: Path, base: str) -> None:
    with pytest.raises(UserError, match=r"^policy\.base: ") as refused:
        recipe(tmp_path, f'{{base: "{base}"}}')
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "base", ["good/model@main", f"good/model@{COMMIT[:12]}", "good/model@", f"good/model@{COMMIT}0"]
)
def test_what_moves_is_no_commit(base: str) -> None:
    with pytest.raises(UserError, match=r"or OWNER/NAME@COMMIT with all 40 digits of the commit$"):
        check_hub_id(base)


@pytest.mark.rotating(of=6)
def test_a_hub_id_with_a_commit_is_that_model_for_ever_and_one_without_is_not_pinned(
    base: Path, tmp_path: Path
) -> None:
    """The hub's cache has two commits, and the network is off; `main` is the newer commit."""
    model = tmp_path / "hub" / "models--good--model"
    newer = COMMIT[::-1]
    for number, commit in enumerate((COMMIT, newer)):
        shutil.copytree(base, model / "snapshots" / commit)
        weights = load_file(base / "model.safetensors")
        filled = {name: torch.full_like(weight, number) for name, weight in weights.items()}
        save_file(filled, model / "snapshots" / commit / "model.safetensors", {"format": "pt"})
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(newer)
    code = f"""from models.policies.build import open_policy, open_tokenizer
from models.policies.hub import check_hub_id, unpinned_base
for base in ("good/model@{COMMIT}", "good/model@{newer}", "good/model"):
    check_hub_id(base)
    assert len(open_tokenizer(base))
    print(float(next(open_policy(base)[0].parameters()).mean()), unpinned_base(base))"""
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "0.0 ",
        "1.0 ",
        "1.0 policy.base: good/model is whatever the hub has under that name; "
        f"write good/model@COMMIT ({newer}, which is in the cache)",
    ]


def test_a_merged_model_saved_over_its_adapter_is_refused_wherever_a_folder_is_read(base: Path, tmp_path: Path) -> None:
    with_adapter(load_causal_model(base, torch.float32), LoraSettings(targets=("q_proj",)), 0).save_pretrained(base)
    says = "holds an adapter next to the weights of a model"
    for read in (open_policy, check_base_folder, check_model_folder):
        with pytest.raises(UserError, match=says):
            read(base)
    with pytest.raises(UserError, match=says):
        recipe(tmp_path, f"{{base: {base}}}")


def test_weights_that_are_loaded_with_an_adapter_on_top_are_refused(base: Path) -> None:
    with_adapter(load_causal_model(base, torch.float32), LoraSettings(targets=("q_proj",)), 0).save_pretrained(base)
    with pytest.raises(UserError, match="holds an adapter next to the weights"):
        load_causal_model(base, torch.float32)


def test_the_line_of_a_pydantic_error_is_its_message_and_not_their_number() -> None:
    class Row(BaseModel):
        tokens: int

        @field_validator("tokens")
        @classmethod
        def _few(cls, value: int) -> int:
            raise ValueError(f"{value} tokens are too many. Take fewer.")

    with pytest.raises(ValidationError) as refused:
        Row(tokens=3)
    assert first_line(refused.value) == "3 tokens are too many"
    assert first_line(ValueError("one\ntwo")) == "one" and first_line(ValueError()) == "ValueError"
