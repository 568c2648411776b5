"""Check of a model folder before an engine starts: every token of the tokenizer must have an embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.remote_code import refuse_untrusted
from models.policies.build import first_line, open_tokenizer
from models.policies.folder import check_model_folder


def read_config(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Return the config of the text model in a model folder.

    Raises:
        UserError: the folder is not a model folder, or its config cannot be read.
    """
    from transformers import AutoConfig

    check_model_folder(folder)
    try:
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        refuse_untrusted(error, folder)
        raise UserError(f"{folder}: its config cannot be read ({first_line(error)})") from None
    return config.get_text_config()


def check_vocabulary(folder: Path, *, trust_remote_code: bool = False) -> None:
    """Check that every token of the tokenizer next to the weights has an embedding; skipped without a tokenizer.

    Raises:
        UserError: the tokenizer has more tokens than the model, or the folder is not a model folder.
    """
    rows = int(read_config(folder, trust_remote_code=trust_remote_code).vocab_size)
    if not (folder / "tokenizer_config.json").is_file():
        return
    tokens = len(open_tokenizer(folder, trust_remote_code=trust_remote_code))
    if tokens > rows:
        raise UserError(f"{folder}: its tokenizer has {tokens} tokens but the model has {rows} embeddings")
