"""Tokens cached on disk: they equal those of a codec without cache, and a damaged file is replaced."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from models.text.encoding import Codec
from models.text.token_cache import CachedCodec
from models.text.tokenizer import TokenizerSettings, load_tokenizer, train_tokenizer

TEXTS = ["7 + 5 = 12 ; #### 12", "", "3 - 8 = -5", "naïve 中文 👩‍👩‍👧 \x00 end", "7 + 5 = 12 ; #### 12"]
TEMPLATE = "{% for m in messages %}Start {{ m['content'] }}{% endfor %}{% if add_generation_prompt %} ={% endif %}"


def tokenizer(texts: Sequence[str] = TEXTS) -> PreTrainedTokenizerBase:
    made = train_tokenizer(texts, TokenizerSettings(kind="bytes", vocabulary=300))
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store" / "tokens"


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


class Untouched:
    """A tokenizer that fails the test if it encodes."""

    def __init__(self, real: PreTrainedTokenizerBase) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __call__(self, *texts: Sequence[str], **options: Any) -> None:
        pytest.fail("encoded again")


def without_encoding(codec: CachedCodec) -> CachedCodec:
    """Return the codec as after a restart; it may load tokens, but encoding fails the test."""
    again = CachedCodec(codec.tokenizer, codec.chat, folder=codec.folder)
    assert again._tokenizer_hash is not None
    object.__setattr__(again, "tokenizer", Untouched(codec.tokenizer))
    return again


@pytest.mark.parametrize("chat", [False, True])
def test_kept_tokens_are_those_of_a_plain_codec_and_are_not_made_again(folder: Path, chat: bool) -> None:
    plain, kept = Codec(tokenizer(), chat), CachedCodec(tokenizer(), chat, folder=folder)
    assert kept.prompts(TEXTS) == plain.prompts(TEXTS)
    assert kept.completions(TEXTS) == plain.completions(TEXTS)
    later = without_encoding(kept)
    assert later.prompts(TEXTS) == plain.prompts(TEXTS)
    assert later.completions(TEXTS) == plain.completions(TEXTS)
    assert len(files(folder)) == 2 and all(file.suffix == ".safetensors" for file in files(folder))
    assert kept.text(kept.completions(TEXTS)) == plain.text(plain.completions(TEXTS))


def test_the_same_tokenizer_loaded_from_any_folder_finds_the_same_file(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        tokenizer().save_pretrained(tmp_path / name)
        CachedCodec(load_tokenizer(tmp_path / name), folder=folder).prompts(TEXTS)
    assert len(files(folder)) == 1


def test_whatever_changes_the_ids_has_a_file_of_its_own(folder: Path) -> None:
    other_template, other_end = tokenizer(), tokenizer()
    other_template.chat_template = TEMPLATE.replace("Start", "Begin")
    other_end.eos_token = "<pad>"
    reset = tokenizer()
    reset._tokenizer = Tokenizer.from_str(
        tokenizer(["quite other words, other merges " * 9]).backend_tokenizer.to_str()
    )
    special = tokenizer()
    special.split_special_tokens = False
    codecs = [
        (tokenizer(), False, TEXTS),
        (tokenizer(), True, TEXTS),
        (other_template, True, TEXTS),
        (other_end, False, TEXTS),
        (reset, False, TEXTS),
        (special, False, ["7 <end> 5"]),
        (tokenizer(), False, ["7 <end> 5"]),
        (tokenizer(), False, TEXTS[::-1][1:]),
        (tokenizer(), False, ["".join(TEXTS)]),
        (tokenizer(), False, ["\0".join(TEXTS)]),
        (tokenizer(), False, [*TEXTS, ""]),
    ]
    for number, (own, chat, texts) in enumerate(codecs):
        kept, plain = CachedCodec(own, chat, folder=folder), Codec(own, chat)
        assert kept.prompts(texts) == plain.prompts(texts)
        assert len(files(folder)) == number + 1
    kept, plain = CachedCodec(other_end, folder=folder), Codec(other_end)
    assert kept.completions(TEXTS) == plain.completions(TEXTS) != Codec(tokenizer()).completions(TEXTS)


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-30] ^= 1
    file.write_bytes(bytes(content))


def foreign(file: Path) -> None:
    save_file({"other": load_file(file)["ids"]}, file)


def unsigned(file: Path) -> None:
    save_file(load_file(file), file)


@pytest.mark.parametrize("damage", [truncated, emptied, flipped, foreign, unsigned])
def test_a_broken_file_is_made_again_with_a_warning(folder: Path, damage: Callable[[Path], None]) -> None:
    expected = Codec(tokenizer()).prompts(TEXTS)
    assert CachedCodec(tokenizer(), folder=folder).prompts(TEXTS) == expected
    (file,) = files(folder)
    whole = file.read_bytes()
    damage(file)
    with pytest.warns(UserWarning, match=r"safetensors: broken \(.*\); encoding the texts again"):
        assert CachedCodec(tokenizer(), folder=folder).prompts(TEXTS) == expected
    assert file.read_bytes() == whole and files(folder) == [file]
    assert without_encoding(CachedCodec(tokenizer(), folder=folder)).prompts(TEXTS) == expected


def test_where_nothing_can_be_written_the_tokens_are_there_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="the tokens are not kept"):
        kept = CachedCodec(tokenizer(), folder=tmp_path / "tokens").prompts(TEXTS)
    assert kept == Codec(tokenizer()).prompts(TEXTS) and os.listdir(tmp_path) == ["tokens"]


def test_nothing_to_encode_leaves_no_file(folder: Path) -> None:
    assert CachedCodec(tokenizer(), folder=folder).prompts([]) == []
    assert files(folder) == []
