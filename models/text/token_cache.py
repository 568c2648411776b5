"""Disk cache of encoded texts, so that the same split is tokenised once: loading takes a hundredth of the time.

A file is named by the hash of all that the ids depend on: the texts, the tokenizer's content and versions, the use of
the chat template, and the text that the recipe writes around every prompt. It may be deleted at any time, and a broken
file is replaced. Texts may come in batches; then neither they nor their ids are ever all in memory
(`models.text.token_rows`).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from models.base.errors import UserError
from models.text.encoding import Codec
from models.text.prompt_form import BARE
from models.text.token_rows import TokenRows, open_rows, rows_in_memory, write_rows

ENCODING = 3
"""Version of the encoding; raise it if the codec produces other ids of the same text, to invalidate existing files."""
AT_ONCE = 1024
"""Number of texts that are encoded together."""


@dataclass(frozen=True)
class CachedCodec(Codec):
    """A codec that caches ids in `folder`; they equal those of a plain codec."""

    folder: Path = field(kw_only=True)
    """Folder of the cache; created if missing."""

    def prompts(self, texts: Sequence[str], systems: Sequence[str] = ()) -> list[list[int]]:
        """See `Codec.prompts`."""
        return list(self.rows_of_prompts([texts], [systems] if systems else None))

    def completions(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Codec.completions`."""
        return list(self.rows_of_completions([texts]))

    def rows_of_prompts(
        self, texts: Iterable[Sequence[str]], systems: Iterable[Sequence[str]] | None = None
    ) -> TokenRows:
        """See `Codec.rows_of_prompts`; the rows are in the file."""
        return self._kept("prompts", texts, super().prompts, systems)

    def rows_of_completions(self, texts: Iterable[Sequence[str]]) -> TokenRows:
        """See `Codec.rows_of_completions`; the rows are in the file."""

        def encode(some: Sequence[str], systems: Sequence[str]) -> list[list[int]]:
            return super(CachedCodec, self).completions(some)

        return self._kept("completions", texts, encode)

    @cached_property
    def _tokenizer_hash(self) -> str | None:
        """Hash of the tokenizer; None if its content is not available as text, which disables the cache."""
        backend: Any = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        plain = getattr(self.tokenizer, "split_special_tokens", False)
        settings = [ENCODING, self.end, self.tokenizer.chat_template, plain]
        import transformers

        versions = [type(self.tokenizer).__name__, tokenizers.__version__, transformers.__version__]
        return _sha256(backend.to_str(), json.dumps([settings, versions]))

    def _kept(
        self,
        role: str,
        texts: Iterable[Sequence[str]],
        encode: Callable[[Sequence[str], Sequence[str]], list[list[int]]],
        systems: Iterable[Sequence[str]] | None = None,
    ) -> TokenRows:
        def batches() -> Iterator[tuple[Sequence[str], Sequence[str]]]:
            return ((some, ()) for some in texts) if systems is None else zip(texts, systems, strict=True)

        def encoded() -> Iterator[list[list[int]]]:
            return (
                encode(some[at : at + AT_ONCE], before[at : at + AT_ONCE])
                for some, before in batches()
                for at in range(0, len(some), AT_ONCE)
            )

        if self._tokenizer_hash is None:
            return rows_in_memory(encoded())
        # Texts are hashed one by one: two different lists may have the same concatenation.
        name, count = hashlib.sha256(), 0
        form = [json.dumps(asdict(self.form))] if role == "prompts" and self.form != BARE else []
        for part in (role, str(self.chat and role == "prompts"), self._tokenizer_hash, *form):
            _add(name, part)
        for some, before in batches():
            for text, system in zip(some, before or [""] * len(some), strict=True):
                _add(name, _sha256(text, system) if system else _sha256(text))
            count += len(some)
        if not count:
            return rows_in_memory(())
        file = self.folder / f"{name.hexdigest()[:32]}.safetensors"
        if file.is_file():
            try:
                return open_rows(file, count)
            except (OSError, TypeError, ValueError, KeyError, UserError) as error:
                warnings.warn(f"{file}: broken ({error}); encoding the texts again", stacklevel=3)
        try:
            write_rows(file, encoded())
            return open_rows(file, count)
        except OSError as error:
            warnings.warn(f"{file}: cannot be written ({error.strerror}); the tokens are not kept", stacklevel=3)
        return rows_in_memory(encoded())


def _add(total: Any, text: str) -> None:
    total.update(text.encode("utf-8", "surrogatepass") + b"\0")


def _sha256(*texts: str) -> str:
    total = hashlib.sha256()
    for text in texts:
        _add(total, text)
    return total.hexdigest()
