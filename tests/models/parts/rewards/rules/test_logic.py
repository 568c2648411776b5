"""The reward of a formula: parsing, agreement of truth tables, and equivalence as a solver decides it."""

import time
from typing import cast

import pytest

from models.answers.equivalence import Prover, shared_prover
from models.answers.logic import DEEPEST, LONGEST, Tree, agreement, read_formula
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.logic import Logic
from models.task_sets.drawing import make_rows
from models.task_sets.formulas import FormulasSettings
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
EVERY = "forall x ( dog ( x ) -> barks ( x ) )"
ENDLESS = "forall x exists y (r(x,y) & forall z (r(y,z) -> r(x,z))) & forall x ~r(x,x)"
"""A formula that is true only in infinite models."""


def values(answer: str, *texts: str, finished: bool = True, partial: float = 0.5) -> list[float]:
    said = [rollout(text, Problem("p", "", answer), finished=finished) for text in texts]
    return Logic(partial=partial)(RESOURCES, said).tolist()


def tree(text: str) -> Tree:
    read = read_formula(text)
    assert read is not None
    return read


def test_a_formula_binds_as_the_house_says_it_does() -> None:
    alike = [
        ("p & q | r -> s <-> t", "(((p & q) | r) -> s) <-> t"), ("p -> q -> r", "p -> (q -> r)"),
        ("~p & q", "(~p) & q"), ("forall x p(x) & q", "(forall x p(x)) & q"), ("p or q xor r", "p or (q xor r)"),
        ("∀y (Dog(y) → ¬Barks(y)).", "forall x (dog(x) => ~ barks(x))"), ("p <-> q <-> r", "(p <-> q) <-> r"),
    ]  # fmt: skip
    for left, right in alike:
        assert tree(left) == tree(right)
    assert tree("exists x (p(x) & exists x q(x))") == tree("exists a (p(a) & exists b q(b))")
    assert tree("exists x p(x) & q(x)") != tree("exists x p(x) & q(y)")  # the second x is free


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p q",
        "p &",
        "& p",
        "(p",
        "p)",
        "forall",
        "forall x",
        "p(",
        "p(x",
        "p()",
        "p(x,)",
        "forall and p",
        "p,q",
        "-",
    ],
)
def test_what_is_no_formula_is_none(text: str) -> None:
    assert read_formula(text) is None


def test_what_is_too_long_or_too_deep_is_none_and_just_not_is_one() -> None:
    assert read_formula("~" * (DEEPEST + 1) + "p") is None and read_formula("~" * (DEEPEST - 9) + "p") is not None
    for sign in ("&", "->", "|", "<->"):
        assert read_formula(sign.join("p" * (DEEPEST + 2))) is None
        assert read_formula(sign.join("p" * (DEEPEST - 9))) is not None
    assert read_formula("p" * (LONGEST + 1)) is None and read_formula("p" * LONGEST) is not None


def test_agreement_by_hand() -> None:
    by_hand = {
        ("p -> q", "~p | q"): 1.0, ("p -> q", "p & q"): 0.5, ("p", "~p"): 0.0, ("p", "q"): 0.5,
        ("p ^ q", "p | q"): 0.75,
        ("p <-> q", "p -> q"): 0.75, ("p(a)", "p(b)"): 0.5, ("forall x p(x)", "exists x p(x)"): 1.0,
        ("p & q & r", "p | q | r"): 0.25,
    }  # fmt: skip
    for (left, right), share in by_hand.items():
        assert agreement(tree(left), tree(right)) == pytest.approx(share), (left, right)
    many = " & ".join(f"p{number}" for number in range(13))
    assert agreement(tree(many), tree("p0")) == 0.0


def test_equivalent_formulas_are_worth_one_and_others_their_agreement() -> None:
    said = {
        EVERY: 1.0,
        "so #### ∀y (¬Barks(y) → ¬Dog(y))": 1.0,
        "~ exists x ( dog(x) & ~barks(x) )": 1.0,
        "forall x ( dog(x) & barks(x) )": 0.25,
        "exists x ( dog(x) -> barks(x) )": 0.5,  # equal except for the quantifier
        "forall x ( dog(x,x) -> barks(x) )": 0.5 * 0.75,  # another predicate, with two arguments
        "forall x (": 0.0,
    }
    assert values(EVERY, *said) == pytest.approx(list(said.values()))
    assert values(EVERY, *said, partial=0.0) == [1.0] * 3 + [0.0] * 4
    assert values(EVERY, *said, finished=False) == [0.0] * len(said)


def test_quantifiers_of_several_things_are_told_apart() -> None:
    wanted = "forall x exists y loves ( x , y )"
    said = ["forall a exists b loves(a, b)", "exists y forall x loves(x, y)", "~ exists x forall y ~ loves(x, y)"]
    assert values(wanted, *said) == pytest.approx([1.0, 0.5 * 0.5, 1.0])


def test_what_the_solver_cannot_decide_is_not_equivalent_and_costs_little() -> None:
    began = time.monotonic()
    [worth] = values(ENDLESS, "p & ~p")
    assert worth < 1 and time.monotonic() - began < 20


def test_a_solver_that_hangs_is_ended_and_the_next_pair_is_answered_by_another() -> None:
    prover = Prover()
    prover.start()
    pair, other = (tree("p -> q"), tree("~p | q")), (tree("p"), tree("q"))
    try:
        assert prover.equivalent([pair], 0.0) == [False]  # a time limit of zero
        assert prover.equivalent([pair, other, pair], 60.0) == [True, False, True]
        prover.close()
        assert prover.equivalent([pair], 60.0) == [True]
    finally:
        prover.close()


def test_who_gives_up_waiting_does_not_leave_an_answer_to_the_next_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(prover: Prover, seconds: float) -> str | None:
        raise TimeoutError("a reward's limit")

    prover = Prover()
    prover.start()
    pair, other = (tree("p -> q"), tree("~p | q")), (tree("p"), tree("q"))
    try:
        with monkeypatch.context() as patch, pytest.raises(TimeoutError):
            patch.setattr(Prover, "_line", gives_up)
            prover.equivalent([pair], 60.0)
        assert prover.equivalent([other, pair, other], 60.0) == [False, True, False]
    finally:
        prover.close()


def test_no_text_whatever_raises_and_none_of_it_is_right() -> None:
    for answer in (EVERY, "p", "", "no formula ("):
        assert max(Logic()(RESOURCES, malformed(Problem("p", "", answer))).tolist()) < 1
    assert Logic()(RESOURCES, []).tolist() == []


def test_evaluations_count_what_is_equivalent() -> None:
    wanted = Problem("p", "", EVERY)
    attempts = [
        Attempt(wanted, EVERY, True), Attempt(wanted, EVERY, False), Attempt(wanted, "dog ( x )", True),
        Attempt(wanted, "~ exists x (dog(x) & ~barks(x))", True), Attempt(Problem("q", "", ""), "p", True),
    ]  # fmt: skip
    assert Logic().right(attempts) == [True, False, False, True, False]


def test_sound_demonstrations_are_right_and_drafts_that_are_kept_are_not() -> None:
    settings = FormulasSettings(
        problems={"train": 60, "validation": 5, "gate": 5}, demonstrations={"train": 120}, corrupted=0.3, kept=0.5
    )
    rows = make_rows(settings)
    answers = {row["prompt"]: str(row["answer"]) for row in rows["problems"]["train"]}
    shown = rows["demonstrations"]["train"]
    attempts = [Attempt(Problem("p", "", answers[row["prompt"]]), str(row["completion"]), True) for row in shown]
    assert Logic().right(attempts) == [row["flaw"] == "none" for row in shown]
    assert {row["flaw"] for row in shown} == {"none", "kept"}
    for row in rows["problems"]["train"]:
        draft = str(row["prompt"]).partition(" . ")[2]
        assert (draft == row["answer"]) == (row["level"] == 1)
    shared_prover().close()
