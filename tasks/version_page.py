"""The pages of a registered model and of its versions, in Markdown: what a person asks who thinks of using one.

Pure functions from plain data to text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.description import WAITS, CheckLike, Decision, cell, code, fact, fenced, gate_table, section

_HEADLINES: Mapping[Decision, str] = {
    "promoted": "✔ Promoted",
    "kept": "= Not better",
    "refused": "✘ Refused",
    "waiting": WAITS,
}


def version_page(
    decision: Decision,
    reason: str,
    difference: str,
    compared_with: str,
    checks: Sequence[CheckLike],
    notes: Sequence[str],
    origin: Mapping[str, str],
    address: str,
) -> str:
    """The page of a policy's version.

    Args:
        difference: candidate minus what it was compared with, with its interval and its metric, as text.
        notes: what a reader must know of the comparison, one sentence each.
        origin: what it is made of, by name: recipe, data, run...; addresses become links.
        address: `models:/NAME/VERSION`.
    """
    shown = "\n".join(f"- {cell(key)}: {_linked(value)}" for key, value in origin.items() if value)
    return "\n\n".join(
        text
        for text in (
            # Without any mark-up: the list of versions shows it as it stands.
            f"{_HEADLINES.get(decision, decision)}: {difference} against {compared_with}",
            cell(reason),
            section("Gate", "\n\n".join([*map(cell, notes), gate_table(checks)])),
            section("Where it comes from", shown),
            section("Load it", _how_to_load(address)),
        )
        if text
    )


WORDS = ("Approved by ", "Rejected by ")
"""How a person's word on a candidate begins."""
_BY_HAND = "Champion by hand: "
_BEFORE = "\n\n---\n\n"
"""Between what is said of a champion that was set by hand and the page that the version had before."""

_REPRODUCED = "\n\n### Trained again\n\n"
"""Before what `rewardflow reproduce` saw."""


def page_of_champion_by_hand(
    said: str, checks: Sequence[CheckLike], notes: Sequence[str], against: str, page: str, longest: int
) -> str:
    """The page of a version that a person made champion: what the gate says of that, then the page it had.

    Args:
        said: the verdict in one sentence, or why there is none.
        checks: of the gate; none where it could not judge.
        notes: see `version_page`.
        against: what it was held against.
        page: the version's page, which may begin with an earlier word of this kind.
        longest: characters that a page may have.
    """
    if page.startswith(_BY_HAND):
        page = page.partition(_BEFORE)[2]
    # Without any mark-up: the list of versions shows it as it stands.
    parts = [f"{_BY_HAND}{' '.join(said.split())}"]
    if checks:
        parts.append(
            section(f"The gate, against {cell(against)}", "\n\n".join([*map(cell, notes), gate_table(checks)]))
        )
    whole = "\n\n".join(parts) + (f"{_BEFORE}{page}" if page else "")
    return whole if len(whole) <= longest else f"{whole[: longest - 2]} …"


def page_with_a_word(word: str, page: str) -> str:
    """The page of a version that a person approved or rejected, or of its run: the word, then what the gate said.

    Args:
        word: in one sentence, which begins with one of WORDS.
        page: that it had while it waited, or has already where writing the word was cut off.
    """
    if page.startswith(WORDS):
        page = page.partition(_BEFORE)[2]
    # Without any mark-up: the list of versions shows it as it stands.
    before = page.replace(WAITS, "Passed the gate", 1) if page.removeprefix("## ").startswith(WAITS) else page
    return f"{' '.join(word.split())}{_BEFORE}{before}"


def page_with_reproduction(said: str, page: str) -> str:
    """The page of a version that was trained again: whether it came out the same stands last, the newest word alone.

    Args:
        said: in one sentence.
        page: that it had, which may end with an earlier word of this kind.
    """
    before = page.partition(_REPRODUCED)[0].rstrip()
    return f"{before}{_REPRODUCED}{cell(said)}\n"


def policy_page(recipe: str, name: str) -> str:
    """The page of a registered policy."""
    return (
        f"Policies that the recipe {code(recipe)} trained, a version for each that came out with new weights.\n\n"
        "- `champion`: the version in use; a candidate takes its place only through the gate, or by a person's hand\n"
        "- `previous`: the champion before, to which `rewardflow rollback` returns\n"
        "- `candidate`: the newest that was judged\n"
        "- `anchor`: the first champion, or the one that a person named; guards are held against it too\n\n"
        f"{_how_to_load(f'models:/{name}@champion')}"
    )


def reward_model_page(recipe: str) -> str:
    """The page of a registered reward model."""
    return (
        f"Reward models of the recipe {code(recipe)}: a text classifier with one label, whose logit says how good a "
        "completion is beside others of the same prompt. Policies name the version that they were trained against."
    )


def _how_to_load(address: str) -> str:
    return fenced(
        f'import mlflow\nmlflow.transformers.load_model("{address}")   # a transformers pipeline\n'
        f'folder = mlflow.artifacts.download_artifacts("{address}/model")   # for from_pretrained and vLLM',
        "python",
    )


def _linked(value: str) -> str:
    """Text, a link that is written as one, or an address."""
    return value if value.startswith("[") else fact(value)
