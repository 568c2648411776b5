"""The solver's process: reads pairs of formulas, one line of JSON each, and decides whether they are equivalent.

Started by `models.answers.equivalence`. Free names are constants, predicates are distinguished by name and number of
arguments, and all things are of one sort.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import z3


def main(steps: int) -> None:
    """Write `yes` or `no` for each line of standard input, `no` also if the solver gives up."""
    print("ready", flush=True)
    for line in sys.stdin:
        left, right = json.loads(line)
        try:
            answer = _equivalent(left, right, steps)
        except z3.Z3Exception:
            answer = False
        print("yes" if answer else "no", flush=True)


def _equivalent(left: Any, right: Any, steps: int) -> bool:
    things = z3.DeclareSort("thing")
    solver = z3.Solver()
    solver.set("rlimit", steps)
    solver.add(_formula(left, {}, things) != _formula(right, {}, things))
    return bool(solver.check() == z3.unsat)


def _formula(tree: Any, bound: Mapping[str, Any], things: Any) -> Any:
    head, *parts = tree
    if head == "atom":
        name, *arguments = parts
        given = [bound[each] if each in bound else z3.Const(f"name {each}", things) for each in arguments]
        if not given:
            return z3.Bool(f"atom {name}")
        predicate = z3.Function(f"{name}/{len(given)}", *[things] * len(given), z3.BoolSort())
        return predicate(*given)
    if head in ("forall", "exists"):
        variable, body = parts
        thing = z3.Const(variable, things)
        quantify = z3.ForAll if head == "forall" else z3.Exists
        return quantify([thing], _formula(body, {**bound, variable: thing}, things))
    made = [_formula(part, bound, things) for part in parts]
    match head:
        case "not":
            return z3.Not(made[0])
        case "and":
            return z3.And(*made)
        case "or":
            return z3.Or(*made)
        case "xor":
            return z3.Xor(*made)
        case "implies":
            return z3.Implies(*made)
    return made[0] == made[1]


if __name__ == "__main__":
    main(int(sys.argv[1]))
