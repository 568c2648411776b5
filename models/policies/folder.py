"""A model folder: a Hugging Face checkpoint in safetensors with its tokenizer, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.atomic_write import replace_folder
from models.base.errors import UserError, listed, shortened
from models.policies.base_models.store import folder_of, is_named
from models.text.base_images import write_processor

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def save_model_folder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    write_extra: Callable[[Path], None] = lambda folder: None,
) -> str:
    """Write model and tokenizer to `target`, atomically. Returns the content hash of the folder.

    Args:
        write_extra: writes additional files into the folder, such as `models.policies.use`.
    """

    with replace_folder(target) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        write_processor(tokenizer, folder)
        write_extra(folder)
    return hash_folder(target)


def hash_folder(folder: Path, *, weights: bool = True) -> str:
    """Return the SHA-256 over names and contents of all files of `folder`, or all but the weights, in order of name."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and (weights or not file.name.endswith((".safetensors", ".safetensors.index.json"))):
            total.update(str(file.relative_to(folder)).encode() + b"\0")
            with file.open("rb") as handle:
                total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()


CHAMPION, MODELS = "champion", "models:/"
"""Values of `policy.base` besides folders and hub ids: the recipe's own champion, addresses of registered versions."""


def is_registered(base: object) -> bool:
    """Return whether `policy.base` means a registered version; a folder of that name is written `./champion`."""
    return isinstance(base, str) and (base == CHAMPION or base.startswith(MODELS))


def given_folder(base: str) -> Path | None:
    """Return the local folder that a value of `policy.base` means; None if it means none, as a hub id does.

    A name in the catalogue of base models means its folder below the state folder. A GGUF file means the folder that
    it is converted to, and is converted now if it was not before.

    Raises:
        UserError: the named model is not on this machine, or a GGUF file cannot be converted.
    """
    try:
        if is_named(base):
            return folder_of(base)
        if Path(base).exists() or base.startswith((".", "/", "~")):
            return Path(base).expanduser()
    except OSError as error:  # a name that no file system accepts
        raise UserError(f"policy.base: {shortened(base)}: {error.strerror}") from None
    except RuntimeError:
        raise UserError(f"policy.base: {shortened(base)}: this user is not known here") from None
    return None


ADAPTERS = ("adapter_config.json", "adapter_model.*")
"""Files of an adapter, as peft names them."""


def check_model_folder(folder: Path) -> None:
    """Check that `folder` holds a loadable safetensors checkpoint.

    Raises:
        UserError: the folder, its config, its tokenizer or its weights are missing, the weights are not safetensors, or
            an adapter is in the same folder.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such model folder")
    if not (folder / "config.json").is_file():
        adapter = "; adapters are merged into their base first" if (folder / "adapter_config.json").is_file() else ""
        raise UserError(f"{folder}: config.json is missing; this is not a model folder{adapter}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{folder}/config.json: not valid JSON ({error})") from None
    if not isinstance(config, dict):
        raise UserError(f"{folder}/config.json: not a JSON object but a {type(config).__name__}")
    left = [file.name for pattern in ADAPTERS for file in sorted(folder.glob(pattern))]
    if left:
        raise UserError(
            f"{folder}: holds an adapter next to the weights of a model ({listed(left)}), which would be loaded on top "
            "of them; move these files away if the adapter is merged already, or else merge it first"
        )
    if not list(folder.glob("*.safetensors")):
        pickled = [file.name for file in folder.glob("*.bin")]
        hint = f" (only {', '.join(pickled)}: convert it to safetensors)" if pickled else ""
        raise UserError(f"{folder}: no weights, *.safetensors is missing{hint}")


def check_classifier_code(folder: Path) -> None:
    """Check that the code which a model ships, if any, has a sequence classifier, as a reward model needs.

    Raises:
        UserError: it ships none: a reward model of this architecture cannot be made.
    """
    shipped = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("auto_map") or {}
    if shipped and "AutoModelForSequenceClassification" not in shipped:
        raise UserError(
            f"{folder}: the code that it ships has no sequence classifier (auto_map in config.json), so no reward "
            "model can be made of it; set reward_model: null"
        )
