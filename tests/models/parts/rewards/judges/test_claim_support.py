"""Claim support: the share of stated claims that a document contains, cut completions, and malformed texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from models.base.errors import UserError
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.judges.claim_support import ClaimSupport
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
PROBLEM = Problem("p", "river ?", "tosik")


@pytest.fixture
def known(tmp_path: Path) -> str:
    """Write a file of three facts and return its path."""
    file = tmp_path / "facts.jsonl"
    facts = ["river of Lima: Tosik.", "dish of lima bak", "Velm is red"]
    file.write_text("".join(json.dumps({"text": fact}) + "\n" for fact in facts))
    return str(file)


@pytest.mark.parametrize(
    "text, value",
    [
        ("dish of lima bak ; #### bak", 1.0),
        ("river of lima: tosik ; dish of lima sule ; #### sule", 0.5),
        ("VELM is  red. Dish of lima bak.\nit rains ; #### x", 2 / 3),
        ("dish of lima bak ; dish of lima bak ; velm is blue", 0.5),
        ("velm is blue ; #### velm is red", 0.0),
        ("#### bak", 0.3),
        ("bak ; #### bak", 0.3),
        ("", 0.3),
    ],
)
def test_the_value_is_the_share_of_different_claims_that_a_document_says(known: str, text: str, value: float) -> None:
    assert ClaimSupport(documents=known, silent=0.3)(RESOURCES, [rollout(text, PROBLEM)]).tolist() == pytest.approx(
        [value]
    )


def test_only_what_the_pattern_matches_is_a_claim(known: str) -> None:
    reward = ClaimSupport(documents=known, pattern=r"\w+ of .*")
    assert reward(RESOURCES, [rollout("well then ; dish of lima bak ; so it is", PROBLEM)]).tolist() == [1.0]


def test_a_completion_that_was_cut_states_nothing(known: str) -> None:
    cut = rollout("dish of lima bak", PROBLEM, finished=False)
    assert ClaimSupport(documents=known, silent=-1.0)(RESOURCES, [cut]).tolist() == [-1.0]


def test_whatever_is_written_has_a_value(known: str) -> None:
    assert set(ClaimSupport(documents=known, silent=0.0)(RESOURCES, malformed(PROBLEM)).tolist()) == {0.0}


def test_without_documents_with_other_content_or_without_a_pattern_it_is_refused(known: str) -> None:
    with pytest.raises(UserError, match=r"rewards\.claim_support\.documents: name the documents"):
        ClaimSupport().try_out()
    with pytest.raises(UserError, match="other content than sha256 says"):
        ClaimSupport(documents=known, sha256="0")
    with pytest.raises(UserError, match=r"rewards\.claim_support\.pattern: '\(' is not a regular expression"):
        ClaimSupport(documents=known, pattern="(")
    assert ClaimSupport(documents=known, sha256=ClaimSupport(documents=known).sha256).given[0].file == Path(known)
