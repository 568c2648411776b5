"""Export of a registered policy as a self-contained folder: weights as safetensors or GGUF, tokenizer, model card."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from models.base.atomic_write import replace_folder, write_file
from models.base.disk import share_file
from models.base.errors import UserError
from models.evaluation.gate.paired_change import metric_intervals
from models.policies.base_models.gguf_writer import GgufOrigin, GgufType, write_gguf
from models.policies.base_models.source import carry_source, licence_file, read_source
from models.policies.folder import check_model_folder, hash_folder
from models.policies.use import read_use
from models.text.chat_template import write_plain_template
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.unwritten import write_tags
from tasks.pages.model_card import Card, Chat, hub_base, model_card
from tasks.registered.evaluation_difference import metric_names, read_answers
from tasks.registered.files import registered_files
from tasks.registered.recorded_recipe import WHOLE
from tasks.tracking import registry, tags
from tasks.tracking.lineage import stages_of
from tasks.tracking.recorded import VersionRecord, read_text
from tasks.tracking.registry import VersionInfo
from tasks.tracking.verdict_record import verdict_of
from tasks.tracking.verdict_text import ruling_text, verdict_text

CARD = "README.md"
SERVING = "serving"
"""Folder in the state folder with the exported versions that vLLM serves."""
MAKING, USING = ".lock", ".use"
"""Suffixes of two locks next to each folder there: one for the process that makes it, one for all that serve it.
`rewardflow gc` keeps them: a lock whose file is deleted no longer blocks other processes."""


def export(record: VersionRecord, target: Path, licence: str = "", *, share: bool = False) -> None:
    """Write a version's model folder with its card to `target`, atomically.

    Args:
        record: the record of the version.
        target: a folder that does not exist yet, or is empty.
        licence: identifier as on the Hub; empty if unknown.
        share: whether the weights may be hard links to the registered files, for a folder that is only read.

    Raises:
        UserError: the folder is not empty, `record` is not a policy's version, or its files are gone or are not the
            registered ones.
    """
    require_empty(target)
    version, original = exported_files(record)
    with _written(target) as partial_folder:
        chat = _assemble(record, original, partial_folder, share_file if share else shutil.copyfile)
        text = model_card(card_of(record, version, original, licence, chat), f"./{target.name}")
        (partial_folder / CARD).write_text(text, encoding="utf-8")


def export_gguf(record: VersionRecord, target: Path, kind: GgufType | None = None, licence: str = "") -> Path:
    """Write a version as one GGUF file to `target`, with its card and licence, atomically. Return the file.

    Args:
        record: see `export`.
        target: see `export`.
        kind: type of the matrices; None: the type of the version's weights.
        licence: see `export`.

    Raises:
        UserError: see `export`; or GGUF cannot describe the model or its tokenizer.
    """
    require_empty(target)
    version, original = exported_files(record)
    use, source = read_use(original), read_source(original)
    if use.gated or use.mask_top_p < 1:
        raise UserError(f"{record.label}: its completions are drawn with a second model, which GGUF cannot describe")
    if recipe_of(record).get("policy", {}).get("trust_remote_code"):
        raise UserError(f"{record.label}: GGUF cannot describe a model that runs code of its own (trust_remote_code)")
    with _written(target) as partial_folder:
        whole = partial_folder / "safetensors"
        whole.mkdir()
        chat = _assemble(record, original, whole, share_file)
        card = card_of(record, version, original, licence, chat)
        name = served_name(version)
        repository = hub_base(card)
        facts = {"weights_sha256": tags.WEIGHTS_SHA256, "commit": tags.GIT_COMMIT, "base_source": tags.BASE_SOURCE}
        origin = GgufOrigin(
            name=name,
            version=str(version.version),
            licence=licence or (source.licence if source is not None else ""),
            description=f"{version.name} version {version.version}, a policy that Rewardflow trained",
            base=repository.rpartition("/")[2] or (source.name if source is not None else ""),
            base_repository=f"https://huggingface.co/{repository}" if repository else "",
            more={f"rewardflow.{key}": record.facts.get(tag, "") for key, tag in facts.items()},
        )
        written = write_gguf(whole, partial_folder / "model.gguf", kind, origin)
        file = f"{name}-{written.upper()}.gguf"
        (partial_folder / "model.gguf").rename(partial_folder / file)
        text = model_card(replace(card, gguf=file), f"./{target.name}")
        (partial_folder / CARD).write_text(text, encoding="utf-8")
        carry_source(whole, partial_folder)
        shutil.rmtree(whole)
    return target / file


def exported_files(record: VersionRecord) -> tuple[VersionInfo, Path]:
    """Return the version that a record describes, and its registered model folder, which is not to be changed.

    Raises:
        UserError: `record` is not a policy's version, or its files are gone or are not the registered ones.
    """
    version = record.version
    if version is None:
        raise UserError(f"{record.label} is not a version; `rewardflow models` lists what can be exported")
    original, _ = registered_files(version)
    check_model_folder(original)
    architectures = json.loads((original / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
    if any("SequenceClassification" in name for name in architectures):
        raise UserError(f"{record.label} is a reward model; policies are exported")
    return version, original


@contextmanager
def _written(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target`; an error of the file system is a UserError."""
    try:
        with replace_folder(target.absolute()) as partial_folder:
            yield partial_folder
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None


def _assemble(record: VersionRecord, original: Path, folder: Path, place: Callable[[Path, Path], object]) -> Chat:
    """Fill a folder with a version's model, with its chat template settled and its tags as text.

    Args:
        place: puts a file of weights into the folder.

    Returns:
        The kind of its chat.
    """

    def put(source: str, into: str) -> None:
        # copyfile: the copies get the usual permissions, so that others may read them
        (place if source.endswith(".safetensors") else shutil.copyfile)(Path(source), Path(into))

    shutil.copytree(original, folder, copy_function=put, dirs_exist_ok=True)
    chat = _settle_chat(record, folder)
    trusted = bool(recipe_of(record).get("policy", {}).get("trust_remote_code"))
    write_tags(folder, ends_of_folder(folder), trust_remote_code=trusted)
    return chat


@contextmanager
def served_folder(record: VersionRecord, home: Path) -> Iterator[Path]:
    """Export a version for serving, unless this was done before, and yield its folder in the state folder `home`.

    It is made once and reused while it is intact; `rewardflow gc` deletes folders that were not served for long, and
    none that is being served.

    Raises:
        UserError: see `export`.
    """
    version = record.version
    weights = record.facts.get(tags.WEIGHTS_SHA256) or (hash_folder(registry.fetch(version.uri)) if version else "")
    folder = home / SERVING / f"{weights[:16]}-v{version.version if version else 0}"
    seal = folder.with_suffix(".sha256")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(USING).open("a+") as use:
        fcntl.flock(use, fcntl.LOCK_SH)
        with folder.with_suffix(MAKING).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two commands that serve one version have one folder
            if folder.is_dir() and seal.is_file() and seal.read_text(encoding="utf-8") == hash_folder(folder):
                for path in (folder, seal):
                    os.utime(path)
            else:
                shutil.rmtree(folder, ignore_errors=True)
                export(record, folder)
                write_file(seal, hash_folder(folder))
        yield folder


@contextmanager
def unused(place: Path) -> Iterator[bool]:
    """Yield whether no process serves from a folder below `serving/`, given as the folder or as its hash file.

    If so, a process that begins to serve from it waits until the end of the block.
    """
    lock = place.with_suffix(USING)
    if not lock.is_file():  # it was never served since it was made
        yield True
        return
    try:
        use = lock.open("r+")
    except OSError:  # nothing here is ours to remove
        yield False
        return
    with use:
        try:
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def recipe_of(record: VersionRecord) -> dict[str, Any]:
    """Return the whole recipe of a version; empty if it is not recorded."""
    text = read_text(record.run, WHOLE)
    return dict(json.loads(text)) if text else {}


def _settle_chat(record: VersionRecord, folder: Path) -> Chat:
    """Write a chat template for a policy that was trained on plain prompts, if possible; return how it chats."""
    policy = recipe_of(record).get("policy")
    if policy is None or policy.get("chat"):
        return "own"
    use, trusted = read_use(folder), bool(policy.get("trust_remote_code"))
    return "plain" if write_plain_template(folder, use.after_prompt, use.text, trust_remote_code=trusted) else "none"


def require_empty(target: Path) -> None:
    """Check that `target` does not exist or is an empty folder. Raise UserError otherwise."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        problem = "holds something already" if target.is_dir() else "is not a folder"
        raise UserError(f"{target}: {problem}; name a folder that is not there yet, or an empty one")


def served_name(version: VersionInfo) -> str:
    """Return the name under which vLLM serves a version."""
    return f"{version.name}-v{version.version}"


def card_of(record: VersionRecord, version: VersionInfo, folder: Path, licence: str, chat: Chat) -> Card:
    """Collect the contents of a version's card.

    Args:
        record: the record of the version.
        version: the version.
        folder: its model folder.
        licence: see `export`.
        chat: the kind of its chat.
    """
    facts, answers, recipe = record.facts, read_answers(record), recipe_of(record)
    verdict = verdict_of(facts)
    origin = {
        "recipe": facts.get(tags.RECIPE, ""),
        "recipe sha256": facts.get(tags.RECIPE_SHA256, ""),
        "commit": facts.get(tags.GIT_COMMIT, ""),
        "not pinned": facts.get(tags.UNPINNED, ""),
        "data revision": facts.get(tags.DATA_REVISION, ""),
        "seed": facts.get(tags.SEED, ""),
        "reward model": facts.get(tags.REWARD_MODEL_VERSION, ""),
        "merged from": facts.get(tags.MERGED_FROM, ""),
        "trained on from": facts.get(tags.BASE_VERSION, ""),
        "stages": " -> ".join(f"{stage.name}/{stage.version}" for stage in stages_of(version)),
        "base model": facts.get(tags.BASE_SOURCE, ""),
        "weights sha256": facts.get(tags.WEIGHTS_SHA256, ""),
        "MLflow run": record.run,
        "address": version.uri,
    }
    return Card(
        name=version.name,
        version=version.version,
        aliases=tuple(sorted(version.aliases)),
        licence=licence,
        source=read_source(folder),
        licence_file=text.name if (text := licence_file(folder)) else "",
        base=recipe.get("policy", {}).get("base") or "",
        data=[
            [link.name, link.context, link.digest, f"{link.rows:,}" if link.rows is not None else ""]
            for link in record.data
        ],
        origin=origin,
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True) if recipe else "",
        evaluated_on=f"{len(answers):,} held-out problems" if answers else "",
        metrics=metric_intervals(metric_names(record.metrics, answers), answers) if answers else {},
        verdict=verdict_text(verdict) if verdict is not None else "",
        compared=": ".join(filter(None, (facts.get(tags.COMPARED_WITH, ""), facts.get(tags.IMPROVEMENT, "")))),
        checks=verdict.checks if verdict is not None else (),
        approval={
            "champion since": facts.get(tags.PROMOTED_AT, ""),
            "made champion by": facts.get(tags.PROMOTED_BY, ""),
            "ruling": ruling_text(verdict.ruling) if verdict is not None and verdict.ruling is not None else "",
        },
        use=read_use(folder),
        form=PromptForm.of(recipe.get("policy", {}).get("system"), recipe.get("data", {}).get("template")),
        chat=chat,
        served_name=served_name(version),
    )
