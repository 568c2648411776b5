"""Encoded texts kept on disk, so that the same split is tokenised once: loading takes a hundredth of the time.

A file is named by the hash of all that the ids depend on: the texts, the tokenizer's content and versions, and
whether the chat template is used. It holds all ids one after the other and where each text's begin. It may be
deleted at any time; one that is broken is made again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from models.atomic_write import write_file
from models.text.encoding import Codec

ENCODING = 2
"""Raised where the codec makes other ids of the same text: what was kept before is not read again."""


@dataclass(frozen=True)
class CachedCodec(Codec):
    """A codec that keeps what it encodes in `folder`; its ids are those of a plain one."""

    folder: Path = field(kw_only=True)
    """Made where it is missing."""

    def prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Codec.prompts`."""
        return self._kept("prompts", texts, super().prompts)

    def completions(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Codec.completions`."""
        return self._kept("completions", texts, super().completions)

    @cached_property
    def _tokenizer_hash(self) -> str | None:
        """None for a tokenizer whose content cannot be had as text: nothing is kept for it."""
        backend: Any = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        plain = getattr(self.tokenizer, "split_special_tokens", False)
        beside = [ENCODING, self.end, self.tokenizer.chat_template, plain]
        import transformers

        versions = [type(self.tokenizer).__name__, tokenizers.__version__, transformers.__version__]
        return _sha256(backend.to_str(), json.dumps([beside, versions]))

    def _kept(
        self, role: str, texts: Sequence[str], encode: Callable[[Sequence[str]], list[list[int]]]
    ) -> list[list[int]]:
        if self._tokenizer_hash is None or not texts:
            return encode(texts)
        # Texts are hashed one by one: two lists that only join to the same text are different lists.
        name = _sha256(role, str(self.chat and role == "prompts"), self._tokenizer_hash, *map(_sha256, texts))
        file = self.folder / f"{name[:32]}.safetensors"
        if file.is_file():
            try:
                return _read(file, len(texts))
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                warnings.warn(f"{file}: broken ({error}); encoding the texts again", stacklevel=3)
        rows = encode(texts)
        try:
            _write(file, rows)
        except OSError as error:  # the ids are there all the same
            warnings.warn(f"{file}: cannot be written ({error.strerror}); the tokens are not kept", stacklevel=3)
        return rows


def _sha256(*texts: str) -> str:
    total = hashlib.sha256()
    for text in texts:
        total.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return total.hexdigest()


def _write(file: Path, rows: Sequence[Sequence[int]]) -> None:
    """Write ragged `rows` as flat ids, [tokens], and the place where each begins and the last ends, [rows + 1]."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(starts[-1]))
    data = save({"ids": ids, "starts": starts}, metadata={"sha256": _content_hash(ids, starts)})
    write_file(file, data)


def _read(file: Path, count: int) -> list[list[int]]:
    with safe_open(file, framework="numpy") as opened:
        ids, starts = opened.get_tensor("ids"), opened.get_tensor("starts")
        if (opened.metadata() or {}).get("sha256") != _content_hash(ids, starts):
            raise ValueError("its content is not what was written")
    if len(starts) != count + 1:
        raise ValueError(f"{len(starts) - 1} texts, not {count}")
    flat = ids.tolist()
    return [flat[start:end] for start, end in pairwise(starts.tolist())]


def _content_hash(ids: Any, starts: Any) -> str:
    return hashlib.sha256(ids.tobytes() + starts.tobytes()).hexdigest()
