"""A registered policy as a folder that stands by itself: weights in safetensors, tokenizer, a card that says all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from models.atomic_write import replace_folder
from models.errors import UserError
from models.evaluation.paired_change import metric_intervals
from models.policy.folder import check_model_folder, hash_folder
from models.policy.use import read_use
from tasks.evaluation_difference import metric_names, read_answers
from tasks.model_card import Card, model_card
from tasks.recorded_recipe import WHOLE
from tasks.tracking import registry, tags
from tasks.tracking.recorded import Recorded, read_text
from tasks.tracking.registry import VersionInfo

CARD = "README.md"


def export(said: Recorded, target: Path, licence: str = "") -> None:
    """Write a version's model folder with its card to `target`: whole or not at all.

    Args:
        said: what is on record of the version.
        target: a folder that is not there yet, or empty.
        licence: identifier as the Hub has it; empty where nobody says.

    Raises:
        UserError: the folder holds something, what is asked for is no policy's version, its files are gone or are no
            longer what was registered.
    """
    require_empty(target)
    version = said.version
    if version is None:
        raise UserError(f"{said.label} is no version; `rewardflow models` lists what can be exported")
    original = registry.fetch(version.uri)
    check_model_folder(original)
    architectures = json.loads((original / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
    if any("SequenceClassification" in name for name in architectures):
        raise UserError(f"{said.label} is a reward model; policies are exported")
    registered = said.facts.get(tags.WEIGHTS_SHA256, "")
    if registered and hash_folder(original) != registered:
        raise UserError(
            f"{said.label}: its files ({original}) are not what was registered, sha256 {registered[:12]}..."
        )
    text = model_card(card_of(said, version, original, licence), f"./{target.name}")
    try:
        with replace_folder(target.absolute()) as beside:
            shutil.copytree(original, beside, copy_function=shutil.copyfile, dirs_exist_ok=True)  # as others may read
            (beside / CARD).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None


def require_empty(target: Path) -> None:
    """Make sure that `target` is not there or an empty folder. Raises UserError."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        what = "holds something already" if target.is_dir() else "is no folder"
        raise UserError(f"{target}: {what}; name a folder that is not there yet, or an empty one")


def served_name(version: VersionInfo) -> str:
    """What vLLM calls a version that it serves."""
    return f"{version.name}-v{version.version}"


def card_of(said: Recorded, version: VersionInfo, folder: Path, licence: str) -> Card:
    """What the card of a version tells.

    Args:
        said: what is on record of it.
        version: the version.
        folder: its model folder.
        licence: see `export`.
    """
    facts, answers = said.facts, read_answers(said)
    whole = read_text(said.run, WHOLE)
    recipe = json.loads(whole) if whole else {}
    shown = {
        "recipe": facts.get(tags.RECIPE, ""),
        "recipe sha256": facts.get(tags.RECIPE_SHA256, ""),
        "commit": facts.get(tags.GIT_COMMIT, ""),
        "not pinned": facts.get(tags.UNPINNED, ""),
        "data revision": facts.get(tags.DATA_REVISION, ""),
        "seed": facts.get(tags.SEED, ""),
        "reward model": facts.get(tags.REWARD_MODEL_VERSION, ""),
        "trained on from": facts.get(tags.BASE_VERSION, ""),
        "weights sha256": facts.get(tags.WEIGHTS_SHA256, ""),
        "MLflow run": said.run,
        "address": version.uri,
    }
    return Card(
        name=version.name,
        version=version.version,
        aliases=tuple(sorted(version.aliases)),
        licence=licence,
        base=recipe.get("policy", {}).get("base") or "",
        data=[
            [link.name, link.context, link.digest, f"{link.rows:,}" if link.rows is not None else ""]
            for link in said.data
        ],
        origin=shown,
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True) if recipe else "",
        evaluated_on=f"{len(answers):,} held-out problems" if answers else "",
        metrics=metric_intervals(metric_names(said.metrics, answers), answers) if answers else {},
        verdict=facts.get(tags.VERDICT, ""),
        compared=": ".join(filter(None, (facts.get(tags.COMPARED_WITH, ""), facts.get(tags.IMPROVEMENT, "")))),
        checks=tags.read_gate(facts),
        approval={
            "champion since": facts.get(tags.PROMOTED_AT, ""),
            "made champion by": facts.get(tags.PROMOTED_BY, ""),
            "said of it": facts.get(tags.WORD, ""),
        },
        use=read_use(folder),
        served_name=served_name(version),
    )
