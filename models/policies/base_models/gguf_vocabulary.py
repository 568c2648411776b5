"""The tokenizer's part of a GGUF file's metadata, and a check that the file gives the same tokens.

GGUF has no place for a pre-tokenizer or a normalizer. It has a name that each reader knows. A tokenizer is written
only if it equals one of the named ones, and if a tokenizer that is read from the file encodes test texts to the same
ids.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError, shortened
from models.policies.base_models.gguf_file import read_gguf
from models.policies.base_models.gguf_tokenizer import COMPOSED, SPECIALS, pre_tokenizer, tokenizer_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NAMES = ("gpt-2", "smollm", "qwen2", "llama-bpe")
"""Pre-tokenizers by the name that is written; the other known names mean one of these."""
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Types of tokens in the format: text, special, added but not special, without use."""
TEXTS = (
    "", " ", "a", " a", "  two  spaces ", "tab\tand\nline\r\nends\n\n\n", "What is 12345 + 17? 3.14 and 1,000,000",
    "It doesn't, they'll, WE'RE, I'm, you'd", "naïve café e\u0301 Å A\u030a", "東京 こんにちは 안녕 Привет العربية",
    "🙂👩‍👩‍👧 ½ ² ™", "def f(x):\n    return x**2  # !?", "<tag> </tag> [INST] {\"key\": [1, 2]}", "a" * 23,
    "\u00a0\u200b\ufeff", "https://example.org/a_b?c=d&e=%20",
)  # fmt: skip
"""Texts whose tokens are compared."""

Facts = dict[str, Any]
"""Metadata of a GGUF file by key; a list of integers becomes an array of 32-bit integers."""


def vocabulary_facts(tokenizer: PreTrainedTokenizerBase, rows: int, folder: Path, ends: Collection[int] = ()) -> Facts:
    """Return the metadata that describes a tokenizer and its chat template.

    Args:
        tokenizer: the tokenizer in `folder`.
        rows: number of embeddings; ids without a token get one that is marked as unused.
        folder: model folder, for messages.
        ends: ids that end a completion. The tokenizer's own end is written as such, one other as the end of a turn.

    Raises:
        UserError: the tokenizer is not a byte-level BPE with a pre-tokenizer that the format names, or it has more
            tokens than the model has embeddings.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{folder}: its tokenizer is not one of the tokenizers library, so GGUF cannot describe it")
    parts = json.loads(backend.to_str())
    model = parts["model"]
    if model["type"] != "BPE" or model.get("byte_fallback"):
        kind = "BPE with a fallback to bytes" if model["type"] == "BPE" else model["type"]
        raise UserError(f"{folder}: a tokenizer of the kind {kind} cannot be written to GGUF; byte-level BPE can be")
    name = _name(parts, folder)
    vocabulary = {**model["vocab"], **{token["content"]: token["id"] for token in parts["added_tokens"]}}
    tokens = {number: token for token, number in vocabulary.items()}
    if max(tokens) >= rows:
        raise UserError(f"{folder}: its tokenizer has ids up to {max(tokens)}, but its weights only {rows} embeddings")
    types = dict.fromkeys(tokens, NORMAL)
    types |= {token["id"]: CONTROL if token["special"] else USER_DEFINED for token in parts["added_tokens"]}
    facts: Facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": [tokens.get(number, f"[PAD{number}]") for number in range(rows)],
        "tokenizer.ggml.token_type": [types.get(number, UNUSED) for number in range(rows)],
        "tokenizer.ggml.merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.add_bos_token": _begins(tokenizer, backend),
    }
    roles: Any = tokenizer
    for role, stated in SPECIALS.items():
        if (number := getattr(roles, f"{role}_token_id")) is not None:
            facts[f"tokenizer.ggml.{stated}_token_id"] = int(number)
    others = sorted(set(ends) - {roles.eos_token_id})
    if others:
        facts["tokenizer.ggml.eot_token_id"] = others[0]
    if isinstance(tokenizer.chat_template, str):
        facts["tokenizer.chat_template"] = tokenizer.chat_template
    return facts


def check_same_tokens(tokenizer: PreTrainedTokenizerBase, folder: Path, file: Path) -> None:
    """Check that the tokenizer in a GGUF file gives the same tokens and has the same chat template.

    Names of special tokens in a text count as these tokens on both sides: the format has no other setting.

    Raises:
        UserError: a text has other tokens, or the chat template differs.
    """
    made: Any = tokenizer_of(read_gguf(file))
    ours, theirs = (_reading_specials(it) for it in (tokenizer, made))
    for text in (*TEXTS, *_around_added(tokenizer)):
        if ours.encode(text).ids != theirs.encode(text).ids:
            raise UserError(
                f"{folder}: GGUF cannot describe its tokenizer: {shortened(repr(text))} would have other tokens"
            )
    template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None
    if made.chat_template != template:
        raise UserError(f"{folder}: GGUF cannot keep its chat template")


def _reading_specials(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer's backend that reads the names of special tokens in texts as these tokens."""
    from tokenizers import Tokenizer

    backend: Any = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.encode_special_tokens = False
    backend.no_padding()
    backend.no_truncation()
    return backend


def _name(parts: Any, folder: Path) -> str:
    """Return the format's name of a pre-tokenizer with its normalizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    cut, composed = _plain(parts["pre_tokenizer"]), _plain(parts["normalizer"]) == [{"type": "NFC"}]
    for name in NAMES:
        named = Tokenizer(BPE())
        named.pre_tokenizer = pre_tokenizer(name)
        same = cut == _plain(json.loads(named.to_str())["pre_tokenizer"])
        if same and composed is (name in COMPOSED) and (composed or not parts["normalizer"]):
            return name
    raise UserError(
        f"{folder}: GGUF has no name for the pre-tokenizer of its tokenizer; it can name those of {', '.join(NAMES)}"
    )


def _plain(part: Any) -> list[Any]:
    """Return the steps of a pre-tokenizer or a normalizer without what has no effect on tokens."""
    if not part:
        return []
    steps = part.get("pretokenizers") or part.get("normalizers") or [part]
    return [{key: value for key, value in step.items() if key != "trim_offsets"} for step in steps]


def _begins(tokenizer: Any, backend: Any) -> bool:
    """Return whether the tokenizer writes its first token before every text."""
    ids = backend.encode("a").ids
    return tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]


def _around_added(tokenizer: Any) -> Iterator[str]:
    for token in tokenizer.added_tokens_decoder.values():
        yield from (token.content, f"a{token.content}b", f" a {token.content} b ", f"{token.content}\n{token.content}")
