"""The recipes for real models, their data, and a tiny base model of the same architecture."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.reproduced.experiments import REVERSE, write_inputs
from models.policies.folder import save_model_folder
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.special_tokens import CHAT

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("openenv_questions", "verifiers_haiku")
"""Recipes that need a server or another interpreter, which tests/models/agents/environments/test_foreign_packages.py
uses where they are installed."""
RECIPES = sorted(file for file in (ROOT / "recipes" / "real").glob("*.yaml") if file.stem not in FOREIGN)
QWEN = [file for file in RECIPES if file.stem.startswith("qwen3_")]
"""Recipes for Qwen3, whose models fit on one GPU. Their data are the user's own files."""
DATA = {
    "reverse_text": ("data.path=train.jsonl", "data.test_path=test.jsonl"),
    "gsm8k": ("data.path=gsm8k_train.jsonl", "data.test_path=gsm8k_test.jsonl"),
    "hh": ("data.path=hh_harmless_pairs.jsonl",),
    "smollm2": (),  # built in
}


def data_of(file: Path, folder: Path) -> list[str]:
    """Return overrides that name the data files of a recipe. The files are in `folder` or are made from files there."""
    kind = next(name for name in DATA if name in file.stem)
    folder = reversed_texts(folder) if kind == "reverse_text" else folder
    return [override.replace("=", f"={folder}/") for override in DATA[kind]]


@cache
def reversed_texts(folder: Path) -> Path:
    """Write the rows of the benchmark's reverse-text to a new folder."""
    rows = Path(mkdtemp(prefix="reversed-texts-"))
    write_inputs(REVERSE, folder, rows)
    return rows


def save_tiny_qwen(folder: Path) -> Path:
    """Write a random Qwen3, and a byte-level tokenizer with a chat template, as a base folder."""
    tokenizer = train_tokenizer(["Natalia sold 48 clips ; Human : Assistant :"], TokenizerSettings(vocabulary=300))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = CHAT.replace("{{ bos_token }}", "")
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, intermediate_size=64, max_position_embeddings=4096, tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    save_model_folder(Qwen3ForCausalLM(config), tokenizer, folder)
    return folder
