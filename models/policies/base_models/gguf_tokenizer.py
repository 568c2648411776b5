"""The tokenizer of a GGUF file: built by transformers, then given the pre-tokenizer and special tokens that it names.

transformers keeps GPT-2's pre-tokenizer for names that it does not know, such as SmolLM's: digits would be split
differently from the text that the model was trained on. Names that are not known here are refused. Some versions of
transformers also use another token for the one that ends a text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError, shortened
from models.policies.base_models.gguf_file import GgufFile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT_FORMS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = rf"{_SHORT_FORMS}|{_WORDS}|\p{{N}}|{_REST}"
LLAMA3 = rf"{_SHORT_FORMS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"

SPLITS: dict[str, str | None] = {
    "gpt-2": None,
    "smollm": None,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
}
"""Name of each pre-tokenizer -> regular expression of its splits; None: GPT-2's."""
DIGITS_APART = ("smollm",)
"""Pre-tokenizers that first separate every digit."""
COMPOSED = ("qwen2", "deepseek-r1-qwen")
"""Pre-tokenizers that first compose accents with their letters (NFC)."""
BEGINS = ("llama-bpe", "llama3", "llama-v3")
"""Pre-tokenizers that add the first token before a text by default, if the file has no such setting."""
SPECIALS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Special tokens: name in transformers -> name in the file."""


def tokenizer_of(file: GgufFile) -> PreTrainedTokenizerBase:
    """Build the tokenizer, with the chat template of the file if it has one.

    Raises:
        UserError: the file has none, or one of a kind that is not supported.
    """
    from tokenizers.normalizers import NFC
    from transformers import AutoTokenizer

    kind, name = file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre")
    if kind not in ("gpt2", "llama"):
        raise UserError(f"{file.path}: tokenizer.ggml.model {kind!r} is not supported; supported are gpt2 and llama")
    if kind == "gpt2" and name not in SPLITS:
        raise UserError(f"{file.path}: tokenizer.ggml.pre {name!r} is not supported; supported are {', '.join(SPLITS)}")
    try:
        made: Any = AutoTokenizer.from_pretrained(file.path.absolute().parent, gguf_file=file.path.name)
    except Exception as error:  # damaged metadata fails in many ways
        raise UserError(f"{file.path}: its tokenizer cannot be built ({shortened(error, 120)})") from None
    if kind == "gpt2":
        made.backend_tokenizer.pre_tokenizer = pre_tokenizer(str(name))
        if name in COMPOSED:
            made.backend_tokenizer.normalizer = NFC()
    _name_specials(made, file)
    _leave_out_invented(made, file)
    if file.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or name in BEGINS):
        _begin_with(made, file)
    tokenizer: PreTrainedTokenizerBase = made
    return tokenizer


def pre_tokenizer(name: str) -> Any:
    """Return the pre-tokenizer of the tokenizers library that a name in the format means."""
    from tokenizers import Regex, pre_tokenizers

    split = SPLITS[name]
    if split is not None:
        cut = pre_tokenizers.Split(Regex(split), behavior="isolated")
        return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in DIGITS_APART:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    return words


def _name_specials(tokenizer: Any, file: GgufFile) -> None:
    """Set the special tokens that the file names, if the tokenizer has others."""
    for role, stated in SPECIALS.items():
        number = file.metadata.get(f"tokenizer.ggml.{stated}_token_id")
        if number is None or getattr(tokenizer, f"{role}_token_id") == number:
            continue
        setattr(tokenizer, f"{role}_token", tokenizer.convert_ids_to_tokens(int(number)))
        tokenizer.init_kwargs.pop(f"{role}_token_id", None)


def _leave_out_invented(tokenizer: Any, file: GgufFile) -> None:
    """Remove the token for unknown text that transformers adds after the tokens of a file without one."""
    from tokenizers import Tokenizer

    tokens = len(file.metadata["tokenizer.ggml.tokens"])
    invented = [token.content for number, token in tokenizer.added_tokens_decoder.items() if number >= tokens]
    if not invented:
        return
    if tokenizer.unk_token in invented:
        tokenizer.unk_token = None
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["id"] < tokens]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(parts))


def _begin_with(tokenizer: Any, file: GgufFile) -> None:
    """Add the first token before every text."""
    from tokenizers.processors import TemplateProcessing

    token = tokenizer.bos_token
    if token is None:
        raise UserError(f"{file.path}: tokenizer.ggml.bos_token_id is missing, which its texts begin with")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, tokenizer.bos_token_id)]
    )
