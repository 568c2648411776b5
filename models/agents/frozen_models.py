"""Frozen models that take part in a strategy, opened once and kept open from wave to wave."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path

from models.agents.strategy import CountedPolicy
from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.engines.voice import Voice
from models.policies.build import open_tokenizer
from models.policies.folder import check_model_folder
from models.policies.value_model import HEAD, ValueModel, load_value_model, value_folder
from models.text.end_ids import ends_of_folder


def voice_of(folder_name: str, setting: str, policy: CountedPolicy, weight: float) -> Voice:
    """Return a frozen language model as a voice of the policy's decoding, in float32.

    Args:
        folder_name: its model folder.
        setting: key that names the folder, for the error.
        policy: it must have the same tokens.
        weight: exponent of its distribution.

    Raises:
        UserError: no folder is named, it holds no language model, or its tokens are others than the policy's.
    """
    if not folder_name:
        raise UserError(f"strategy.{setting}: name the folder of a model with the policy's tokenizer")
    folder, engine = Path(folder_name).expanduser().absolute(), engine_of(folder_name, policy)
    if open_tokenizer(folder).get_vocab() != policy.tokenizer.get_vocab():
        raise UserError(f"strategy.{setting}: the tokenizer of {folder} has other tokens than the policy's")
    return Voice(lambda: nullcontext(engine.model), weight)


def engine_of(folder_name: str, policy: CountedPolicy) -> TransformersEngine:
    """Return an engine with the frozen language model of a folder, in float32.

    Args:
        folder_name: its model folder.
        policy: it must have the same number of tokens.

    Raises:
        UserError: the folder holds no language model, or one with another number of tokens.
    """
    folder = Path(folder_name).expanduser().absolute()
    check_model_folder(folder)
    engine = _open_language_model(folder, _changed(folder / "config.json"))
    _check_vocabulary(folder, engine.vocabulary, policy)
    return engine


def values_of(folder_name: str, policy: CountedPolicy) -> ValueModel:
    """Return the value model of a folder, in float32.

    Args:
        folder_name: a policy's model folder with `values/` in it, or the folder of a value model.
        policy: it must have the same tokens.

    Raises:
        UserError: the folder holds no value model, or its tokens are others than the policy's.
    """
    folder = value_folder(Path(folder_name).expanduser().absolute())
    model = _open_values(folder, _changed(folder / HEAD))
    _check_vocabulary(folder, model.vocabulary, policy)
    return model


def _check_vocabulary(folder: Path, vocabulary: int, policy: CountedPolicy) -> None:
    if vocabulary != policy.vocabulary:
        raise UserError(f"strategy: {folder} has {vocabulary} tokens, and the policy {policy.vocabulary}")


def _changed(file: Path) -> int:
    return file.stat().st_mtime_ns


@lru_cache(maxsize=4)
def _open_language_model(folder: Path, changed: int) -> TransformersEngine:
    """Open a model; `changed` is the time at which its folder was written."""
    settings = EngineSettings(name="transformers", precision="float32")
    return TransformersEngine(folder, settings, end=ends_of_folder(folder))


@lru_cache(maxsize=4)
def _open_values(folder: Path, changed: int) -> ValueModel:
    return load_value_model(folder)
