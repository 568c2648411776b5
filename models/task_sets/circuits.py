"""Circuits of three inputs, described in words, to be written in Verilog; some demonstrations are flawed.

    /* not a nand b , xor c */ module m ( input a , input b , input c , output y ) ;
        assign y = ( ~ ( ~ a & b ) ) ^ c ; endmodule

A gate joins two inputs, and a second gate joins its output and the third input. Some circuits invert the first input,
or the final output. The tests of a problem are its test bench, which checks all eight inputs; its answer is the whole
module. The flaws of demonstrations: `broken`, not Verilog; `wrong`, another gate, or an inversion too few or too many.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, NamedTuple

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

GATES = {"and": "&", "or": "|", "xor": "^", "nand": "&", "nor": "|", "xnor": "^"}
"""Verilog operator of each gate; the output of those in `INVERTED` is inverted."""
INVERTED = frozenset({"nand", "nor", "xnor"})
HEAD = "module m ( input a , input b , input c , output y ) ;"
BENCH = """module bench;
  reg a, b, c; wire y; reg [7:0] expected; integer n;
  m circuit (.a(a), .b(b), .c(c), .y(y));
  initial begin
    expected = 8'b{bits};
    for (n = 0; n < 8; n = n + 1) begin
      {{a, b, c}} = n; #1;
      if (y === expected[n]) $display("PASS"); else $display("FAIL %b", n[2:0]);
    end
    $finish;
  end
endmodule
"""


class Circuit(NamedTuple):
    """A circuit of two gates."""

    first: str
    negated: bool
    """Whether the first input is inverted."""
    gate: str
    second: str
    behind: str
    """Second gate, which joins the output of the first and the third input."""
    third: str
    inverted: bool
    """Whether the final output is inverted."""


class CircuitsSettings(TaskSettings):
    """The section `circuits` of params.yaml."""

    states_answer: ClassVar[bool] = False
    broken: Share
    """Share of the demonstrations that are not Verilog."""
    wrong: Share
    """Share of the others that describe another circuit."""

    def draw(self, random: Random) -> Task:
        """Draw a circuit of two gates."""
        first, second, third = random.sample("abc", 3)
        gate, behind = random.choices(list(GATES), k=2)
        circuit = Circuit(first, random.random() < 0.4, gate, second, behind, third, random.random() < 0.4)
        prompt = f"/* {described(circuit)} */ {HEAD}"
        bits = "".join(str(value(circuit, n)) for n in reversed(range(8)))
        body = written(circuit)
        return Task(prompt, f"{HEAD} {body}", 2 + circuit.inverted, (body,), BENCH.format(bits=bits), "m")

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: broken code, another circuit, or the requested one."""
        circuit = read(task.prompt)
        if random.random() < self.broken:
            words = written(circuit).split()
            words.remove(random.choice(["(", ")", ";", "assign"]))
            return "broken", (" ".join(words),)
        if random.random() < self.wrong:
            return "wrong", (written(_other(random, circuit)),)
        return SOUND, task.steps


def described(circuit: Circuit) -> str:
    """Return a circuit in words."""
    begun = f"{'not ' * circuit.negated}{circuit.first} {circuit.gate} {circuit.second}"
    return f"{begun} , {circuit.behind} {circuit.third}{' , inverted' * circuit.inverted}"


def read(prompt: str) -> Circuit:
    """Return the circuit that a prompt describes."""
    words = prompt.split("*/")[0].replace("/*", "").replace(",", "").split()
    negated = words[0] == "not"
    first, gate, second, behind, third, *rest = words[negated:]
    return Circuit(first, negated, gate, second, behind, third, bool(rest))


def written(circuit: Circuit) -> str:
    """Return the Verilog code after the head of the module."""
    first = "~ " * circuit.negated + circuit.first
    inner = _joined(circuit.gate, first, circuit.second, circuit.gate in INVERTED)
    inverted = (circuit.behind in INVERTED) != circuit.inverted
    return f"assign y = {_joined(circuit.behind, f'( {inner} )', circuit.third, inverted)} ; endmodule"


def value(circuit: Circuit, number: int) -> int:
    """Return the output of a circuit for the inputs that are the bits of a number in [0, 8), with a the highest."""
    bits = {name: bool(number >> place & 1) for name, place in zip("abc", (2, 1, 0), strict=True)}
    inner = _gate(circuit.gate, bits[circuit.first] != circuit.negated, bits[circuit.second])
    return int(_gate(circuit.behind, inner, bits[circuit.third]) != circuit.inverted)


def _joined(gate: str, left: str, right: str, inverted: bool) -> str:
    text = f"{left} {GATES[gate]} {right}"
    return f"~ ( {text} )" if inverted else text


def _gate(gate: str, left: bool, right: bool) -> bool:
    plain = {"&": left and right, "|": left or right, "^": left != right}[GATES[gate]]
    return plain != (gate in INVERTED)


def _other(random: Random, circuit: Circuit) -> Circuit:
    """Draw a circuit of which one part differs and whose output differs for some input."""
    others = [circuit._replace(gate=gate) for gate in GATES]
    others += [circuit._replace(behind=gate) for gate in GATES]
    others += [circuit._replace(negated=not circuit.negated), circuit._replace(inverted=not circuit.inverted)]
    return random.choice([other for other in others if any(value(other, n) != value(circuit, n) for n in range(8))])


SETTINGS = CircuitsSettings
