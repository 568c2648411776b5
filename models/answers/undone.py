"""Operations that an expression leaves to be worked out but the expected one does not, as in a copied question.

    \\int_0^1 x dx    \\binom{10}{5}    \\frac{d}{dx} x^2    20!    |-5|    \\sin 30^\\circ    \\sqrt{36} x

Equivalent algebra is not distinguished from the expression in the question: 2(x + 3) is 2x + 6. A task that asks to
expand, to factor or to simplify needs another verifier, which checks the form.
"""

from __future__ import annotations

import re
from functools import lru_cache

from models.answers.numerals import numeral, plain_latex, with_strokes

_PLAIN = frozenset(
    "frac cdot times div pm mp infty pi left right big Big bigl bigr Bigl Bigr bigg text mathrm mathbf textbf mbox "
    "textrm mathit mathbb mathcal operatorname le leq leqslant ge geq geqslant lt gt ne neq in notin approx equiv "
    "quad qquad begin end circ degree emptyset varnothing vec hat bar angle triangle lbrace rbrace langle rangle "
    "lbrack rbrack displaystyle boxed exp imath land lor wedge vee to rightarrow alpha beta gamma delta epsilon "
    "varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi varphi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split()
)
"""Commands without an operation. `\\sum` and `\\prod` do not count as letters."""
_FAMILIES = {
    **dict.fromkeys("sin cos tan cot sec csc".split(), "trigonometry"),
    **dict.fromkeys("arcsin arccos arctan arccot arcsec arccsc".split(), "inverse trigonometry"),
    **dict.fromkeys("sinh cosh tanh coth sech csch".split(), "hyperbolic"),
    **dict.fromkeys("log ln lg lb".split(), "logarithm"),
    **dict.fromkeys("binom dbinom tbinom choose".split(), "binomial"),
    **dict.fromkeys("mod bmod pmod".split(), "modulo"),
    **dict.fromkeys("vert lvert rvert mid abs".split(), "absolute value"),
}
"""Families of commands with the same operation. Every other command is a kind of its own."""
_SIGNS = {"!": "factorial", "'": "derivative", "|": "absolute value"}
_PLAIN_SIGNS = frozenset("−–·×÷≤≥≠≈±∓∞∈∅π°²³αβγδεζηθικλμνξρστυφχψωΓΔΘΛΞΠΣΦΨΩ≡→⇒ℝℤℕℚℂ")
_ENVIRONMENTS = frozenset("matrix pmatrix bmatrix Bmatrix smallmatrix array cases aligned align".split())

_COMMAND = re.compile(r"\\([A-Za-z]+)")
_ENVIRONMENT = re.compile(r"\\begin ?\{([A-Za-z]{1,20})\*?\}")
_OPERATOR_NAME = re.compile(r"\\operatorname\*? ?\{([A-Za-z ]{1,20})\}")
_WRAPPER = re.compile(r"\\(?:mathrm|text|rm|operatorname|mathit|textrm|mbox) ?\{([^{}]{0,40})\}")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3,}")
_DERIVATIVE = re.compile(r"[}d]\{d[A-Za-z({\\]|\\frac d|(?<![A-Za-z\\])d/d")
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]{0,20}\}|[A-Za-z0-9])")
_POWER = re.compile(r"(?:[0-9]|\([0-9.]{1,40}\)|\{[0-9.]{1,40}\})\^(?!\{[^{}]{0,20}/|[{(]?\\frac)")
_PRODUCT = re.compile(
    r"(?<![\^_0-9.])[0-9.]{1,40}(?:\\times|\\cdot|\\div|[*×·÷])[({]?-?[0-9]{1,40}(?![0-9^])"
    r"|[0-9]\)\(-?[0-9]{1,40}\)|(?<![A-Za-z}])\([0-9]{1,40}\)[0-9]"
)
_OF_MATRIX = re.compile(r"\\end\{[a-z]{0,8}matrix\}(?:\\right.)?(?:\^|\\begin)")
_ROOT_BY_POWER = re.compile(r"\^(?:\{[^{}]{0,20}(?:[/.]|\\frac)|\\frac|\((?:-?[0-9]+)/)")
_UNION = re.compile(r"\bor\b|\\ne(?![a-z])|\\neq|\\lor|\\vee|\\setminus|\\backslash|≠")

_PIECE = re.compile(
    r"\\\\|\\[{}]|\\(?:cup|cap|le|leq|leqslant|ge|geq|geqslant|lt|gt|ne|neq|in|notin|land|lor|wedge|vee|lbrace|rbrace|"
    r"langle|rangle|q?quad)(?![A-Za-z])|\\(?:begin|end|text|mathrm|mathbb) ?\{ ?[A-Za-z ]{0,12} ?\}|"
    r"[()\[\],;:&|<>=≤≥≠∈∪∩]|\b(?:and|or)\b"
)
_BETWEEN = re.compile(r"[,;&]|\\\\")
_ATOM = re.compile(r"[-+]? ?(?:\\infty|∞|\\pm ?[0-9.]+)|[A-Za-z]|\\(?:emptyset|varnothing)|∅|[A-Za-z]_[A-Za-z0-9]")
_BRACED_POWER = re.compile(r"10 ?\^ ?\{ ?([-+]?[0-9]{1,3}) ?\}")


def leaves_undone(given: str, expected: str) -> bool:
    """Return whether `given` has an operation that `expected` has not, or computes if `expected` only names numbers."""
    plain, plain_expected = plain_latex(given), plain_latex(expected)
    granted = {"cup"} if _UNION.search(plain_expected) else set()
    return bool(operations(plain) - operations(plain_expected) - granted) or _computes(plain, plain_expected)


@lru_cache(maxsize=1024)
def operations(plain: str) -> frozenset[str]:
    """Return the kinds of operations in LaTeX.

    These are functions, sums, limits, derivatives, roots, powers of numbers, products of numbers, and every command
    that is not known to be without an operation.
    """
    names = [*_COMMAND.findall(plain), *(name.strip() for name in _OPERATOR_NAME.findall(plain))]
    environments = _ENVIRONMENT.findall(plain)
    kinds = {_FAMILIES.get(name, name) for name in names if name not in _PLAIN}
    kinds |= {name for name in environments if name not in _ENVIRONMENTS}
    kinds |= {_FAMILIES.get(word, word) for word in _WORD.findall(plain) if word in _FAMILIES or word == "sqrt"}
    kinds |= {kind for sign, kind in _SIGNS.items() if sign in plain}
    kinds |= {sign for sign in plain if ord(sign) > 127 and not sign.isspace() and sign not in _PLAIN_SIGNS}
    packed = _WRAPPER.sub(r"\1", plain).replace(" ", "")
    without_subscripts = _SUBSCRIPT.sub("", packed)
    for pattern, text, kind in (
        (_DERIVATIVE, packed, "derivative"),
        (_POWER, without_subscripts, "power of a number"),
        (_PRODUCT, without_subscripts, "product of numbers"),
        (_OF_MATRIX, packed, "matrices"),
        (_ROOT_BY_POWER, packed, "sqrt"),
    ):
        if pattern.search(text):
            kinds.add(kind)
    if "trigonometry" in kinds and re.search(r"\^\{?-1", packed):
        kinds.add("inverse trigonometry")
    return frozenset(kinds)


def _computes(given: str, expected: str) -> bool:
    """Return whether `expected` only names numbers, infinities and variables, as (1, 2), {3} and x > 4 do, and `given`
    does not; of lists of one length, `given` must name as many as `expected`."""
    pieces, expected_pieces = (_pieces(_PIECE, text) for text in (given, expected))
    if all(map(_is_atom, expected_pieces)):
        return not all(map(_is_atom, pieces)) or ("\\begin" in expected and len(pieces) != len(expected_pieces))
    pieces, expected_pieces = (_pieces(_BETWEEN, text) for text in (given, expected))
    return len(pieces) == len(expected_pieces) > 1 and sum(map(_is_atom, pieces)) < sum(map(_is_atom, expected_pieces))


def _pieces(between: re.Pattern[str], plain: str) -> list[str]:
    flat = _BRACED_POWER.sub(r"10^\1", with_strokes(plain))
    pieces = (_unbalanced(text.strip()) for text in between.split(flat))
    return [piece for piece in pieces if piece]


def _unbalanced(piece: str) -> str:
    """Return a piece without the brackets around its list, which other pieces close."""
    if any(piece.count(begin) != piece.count(end) for begin, end in ("{}", "()", "[]")):
        return piece.strip("{}()[]\\ ")
    return piece


def _is_atom(piece: str) -> bool:
    if _ATOM.fullmatch(piece):
        return True
    number = numeral(piece)
    return number is not None and not number.quantity.undone
