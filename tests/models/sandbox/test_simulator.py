"""Simulated circuits: the grade of each outcome, and designs that could write their own verdict are refused."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.code.unit_tests import UnitTests
from models.sandbox.sandbox import Ran
from models.sandbox.settings import SandboxSettings
from models.sandbox.simulator import is_closed, require_simulator, verdict_of
from models.sandbox.written import written_circuit
from models.task_sets.circuits import BENCH, HEAD, CircuitsSettings, read, value, written
from tests.support.malformed_texts import malformed, rollout
from tests.support.simulator_here import REASON, simulator_here

SANDBOX = SandboxSettings(seconds=20, workers=2)
REWARD = UnitTests(reads="verilog", sandbox=SANDBOX)
RESOURCES = cast(RunResources, None)
PROMPT = f"/* a and b , or c */ {HEAD}"
PROBLEM = Problem("p", PROMPT, tests=BENCH.format(bits="11101010"), entry_point="m")


simulated = pytest.mark.usefixtures("simulator")


@pytest.fixture(scope="module")
def simulator() -> None:
    """Skip the test if no simulator is available."""
    if not simulator_here():
        pytest.skip(REASON)


@pytest.mark.rotating(of=6)
@simulated
@pytest.mark.parametrize(
    "text, worth",
    [
        ("assign y = ( a & b ) | c ; endmodule", 1.0),
        ("assign y = ~ ( ~ c & ~ ( a & b ) ) ; endmodule", 1.0),
        (f"Here.\n```verilog\n{HEAD}\nassign y = c || (a && b);\nendmodule\n```", 1.0),
        ("reg r ; always @ ( * ) r = a & b | c ; assign y = r ; endmodule", 1.0),
        ("assign y = c ; endmodule", -0.3 + 0.6 * 7 / 8),  # differs in one of eight cases: a and b are 1, c is 0
        ("assign y = ~ ( ( a & b ) | c ) ; endmodule", -0.3),
        ("endmodule", -0.3),  # y is not driven, so it is neither 0 nor 1
        ("assign y = ( a & b | c ; endmodule", -1.0),
        ("assign y = d ; endmodule", -1.0),
        ("module n ; endmodule", -1.0),  # the bench does not find the module that it tests
        ("What a nice circuit.", -1.0),
        # In the last case, a loop has no delay, so simulated time does not advance.
        ("reg r = 0 ; initial while ( 1 ) r = ~ r ; assign y = r ; endmodule", -0.6),
    ],
)
def test_each_grade_of_a_circuit(text: str, worth: float) -> None:
    reward = UnitTests(reads="verilog", sandbox=SandboxSettings(seconds=3, workers=2)) if "while" in text else REWARD
    assert reward(RESOURCES, [rollout(text, PROBLEM)]).tolist() == pytest.approx([worth])


@simulated
def test_circuits_that_pass_decide_in_evaluations_and_cut_ones_do_not() -> None:
    right = "assign y = ( a & b ) | c ; endmodule"
    untested = Problem("q", PROMPT)
    silent = Problem("r", PROMPT, tests="module bench; initial $finish; endmodule")
    attempts = [
        Attempt(PROBLEM, right, True), Attempt(PROBLEM, right, False), Attempt(untested, right, True),
        Attempt(silent, right, True), Attempt(PROBLEM, "assign y = c ; endmodule", True),
    ]  # fmt: skip
    assert REWARD.right(attempts) == [True, False, False, False, False]
    worth = REWARD(RESOURCES, [rollout(each.text, each.problem, finished=each.finished) for each in attempts])
    assert worth.tolist()[:4] == [1.0, -1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "design",
    [
        'initial begin $display("PASS"); $finish; end', "initial $system(\"true\");", "`include \"bench.v\"",
        "initial bench.n = 7;", "initial bench . expected = 0;", "initial \\bench .n = 7;", "defparam bench.x = 1;",
        "initial force y = 1;", "wire [$] x;", "/* */ initial $fwrite(1, \"PASS\");", "\u00e9", "x" * 30_000, "\x00",
        # Text in a string that looks like a comment must not hide code.
        'parameter A = "//"; initial begin $display("PASS"); $finish; end\n',
        'parameter A = "/*"; initial begin $display("PASS"); $finish; end parameter B = "*/";',
        'parameter A = "a\r//"; initial $display("PASS");\n', '// a\rinitial $display("PASS");\n',
        'parameter A = """ " // """; initial $display("PASS");\n', 'parameter A = "\\"//"; initial $finish;\n',
    ],
)  # fmt: skip
def test_a_design_that_could_write_its_verdict_is_not_simulated(design: str) -> None:
    assert not is_closed(f"{HEAD} {design} endmodule")
    assert REWARD(RESOURCES, [rollout(f"{HEAD} {design} endmodule", PROBLEM)]).tolist() == [-1.0]


def test_what_only_computes_or_names_ports_is_simulated() -> None:
    for design in (
        "assign y = $signed(a) + $clog2(8);", "n inner (.a(a), .y(y));", "// $display(1.5) `x bench.n\nassign y = a;",
        "assign y = a ? 1'b0 : 1.5 ;", "n inner (\n .a(a)\n, .y(y));",
        'parameter A = "and // or"; // $display "x" `x\nassign y = a;', '// the "carry"\nassign y = a; /* "$x */',
    ):  # fmt: skip
        assert is_closed(f"{HEAD} {design} endmodule"), design


def test_the_end_and_the_lines_of_a_simulation_are_its_verdict() -> None:
    def said(output: str, status: int | None = 0, late: bool = False, cut: bool = False) -> tuple[str, int, int]:
        verdict = verdict_of(Ran(output, "bench.v:3: syntax error\n", status, cut, late))
        return verdict.outcome, verdict.passed, verdict.cases

    assert said("PASS\nPASS\n") == ("passed", 2, 2)
    assert said("PASS\nFAIL 3\nnote PASS\n") == ("partly", 1, 2)
    assert said("note\n") == ("useless_tests", 0, 0)
    assert said("", 3) == ("uncompilable", 0, 0)
    assert said("PASS\n", 1) == said("PASS\n", None) == said("PASS\n", late=True) == ("failed", 0, 1)
    assert said("PASS\n" * 3, cut=True) == ("failed", 0, 3)


def test_a_circuit_goes_on_where_the_prompt_ends_or_is_whole() -> None:
    assert written_circuit(PROMPT, "endmodule") == f"{HEAD}\nendmodule"
    assert written_circuit(PROMPT, "module m ; endmodule") == "module m ; endmodule"
    assert written_circuit("Write m.", "assign y = a;") == "assign y = a;"


@simulated
def test_no_text_whatever_raises() -> None:
    assert bool((REWARD(RESOURCES, malformed(PROBLEM)) < 0).all())


def test_where_icarus_is_missing_the_recipe_says_so_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="apt-get install iverilog"):
        require_simulator()
    with pytest.raises(UserError, match="missing"):
        REWARD.try_out()


@simulated
def test_demonstrations_are_what_their_flaw_says() -> None:
    settings = CircuitsSettings(problems={}, broken=0.3, wrong=0.5)
    random, seen = Random(1), []
    for _ in range(30):
        task = settings.draw(random)
        flaw, (text,) = settings.demonstrate(random, task)
        problem = Problem("p", task.prompt, task.answer, tests=task.tests, entry_point=task.entry_point)
        seen.append((flaw, Attempt(problem, text, True)))
        assert task.answer.endswith(written(read(task.prompt)))
    assert REWARD.right([attempt for _, attempt in seen]) == [flaw == "none" for flaw, _ in seen]
    assert {flaw for flaw, _ in seen} == {"none", "broken", "wrong"}


def test_a_circuit_by_hand() -> None:
    circuit = read(f"/* not a nand b , xor c , inverted */ {HEAD}")
    # nand(not a, b) is 0 only for a = 0, b = 1. The result is combined with c by xor, and inverted.
    assert [value(circuit, n) for n in range(8)] == [0, 1, 1, 0, 0, 1, 0, 1]
    assert written(circuit) == "assign y = ~ ( ( ~ ( ~ a & b ) ) ^ c ) ; endmodule"
