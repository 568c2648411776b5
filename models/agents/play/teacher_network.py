"""A frozen teacher network with residual blocks, and the students that are made from it by leaving parts out.

    h <- h + relu(h U + c) V     a block with `units` hidden units; its change is |relu(h U + c) V| / |h|, on average
    logits = h R                 the readout; the class is the larger of two logits

A teacher belongs to a seed and a number of blocks. Its blocks are random, some with a large change and some with hardly
any. Its readout is fitted to the classes of the training inputs, which are the signs of a quadratic form. A student has
a choice for each block: whether it is kept, which share of its units (those with the largest weights), and at how many
bits. Its readout is fitted to the teacher's logits on the training inputs, which is distillation in closed form.
Accuracy is measured on held-out inputs. Everything is float64, and depends on seed and choices alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
INPUTS, STREAM, CLASSES, ROWS = 4, 12, 2, 256
"""Sizes: of an input, of the residual stream, of the logits; number of training inputs, and of held-out inputs."""
UNITS = (4, 8, 16)
"""Numbers of hidden units that a block may have."""
BUSY, IDLE = 2.0, 0.04
"""Scales of a block that changes the stream much, and of one that hardly changes it."""
FULL_BITS = 32
"""Bits of a weight of the teacher."""
_RIDGE = 1e-2


@dataclass(frozen=True)
class BlockChoice:
    """What remains of a block."""

    share: float = 1.0
    """Share of its hidden units; 0: the block is dropped."""
    bits: int = FULL_BITS
    """Bits of each of its weights."""


DROPPED = BlockChoice(0.0)


@dataclass(frozen=True)
class StudentScore:
    """Accuracy and size of a student."""

    accuracy: float
    """Share of the held-out inputs whose class is right."""
    size: float
    """Bits of its weights over those of the teacher."""


@dataclass(frozen=True, eq=False)
class _Block:
    inward: Array
    """[stream, units]"""
    offset: Array
    """[units]"""
    outward: Array
    """[units, stream]"""

    @property
    def weights(self) -> int:
        return self.inward.size + self.offset.size + self.outward.size

    def change(self, stream: Array) -> Array:
        """Return what the block adds to the stream, [rows, stream]."""
        added: Array = np.maximum(stream @ self.inward + self.offset, 0.0) @ self.outward
        return added

    def reduced(self, choice: BlockChoice) -> _Block:
        """Return the block with fewer units and coarser weights."""
        count = max(1, round(choice.share * len(self.offset)))
        strength = np.linalg.norm(self.inward, axis=0) * np.linalg.norm(self.outward, axis=1)
        kept = np.sort(np.argsort(-strength, kind="stable")[:count])
        parts = self.inward[:, kept], self.offset[kept], self.outward[kept]
        return _Block(*(quantised(part, choice.bits) for part in parts))


def quantised(weights: Array, bits: int) -> Array:
    """Round weights to the 2^bits - 1 symmetric levels between minus and plus their largest magnitude."""
    if bits >= FULL_BITS or not weights.size:
        return weights
    step = float(np.abs(weights).max()) / (2 ** (bits - 1) - 1)
    return weights if not step else np.round(weights / step) * step


class TeacherNetwork:
    """A teacher, and measures of its students; each choice is measured once."""

    def __init__(self, seed: int, blocks: int) -> None:
        random = np.random.default_rng([seed, blocks])
        inputs, form = random.standard_normal((2 * ROWS, INPUTS)), random.standard_normal((INPUTS, INPUTS))
        values = np.einsum("ni,ij,nj->n", inputs, form, inputs)
        self._classes = (values > np.median(values)).astype(int)
        embedding = random.standard_normal((INPUTS, STREAM)) / np.sqrt(INPUTS)
        self._start: Array = inputs @ embedding
        busy = set(random.permutation(blocks)[: random.integers(1, max(2, blocks // 2 + 1))].tolist())
        self._blocks = [self._drawn(random, BUSY if number in busy else IDLE) for number in range(blocks)]
        self._rest = embedding.size + (STREAM + 1) * CLASSES
        features = self._features(self._blocks)
        readout = _fitted(features[:ROWS], np.eye(CLASSES)[self._classes[:ROWS]])
        self._logits: Array = features @ readout
        self._measured: dict[tuple[BlockChoice, ...], StudentScore] = {}

    @staticmethod
    def _drawn(random: np.random.Generator, scale: float) -> _Block:
        units = int(random.choice(UNITS))
        inward = random.standard_normal((STREAM, units)) / np.sqrt(STREAM)
        outward = scale * random.standard_normal((units, STREAM)) / np.sqrt(units)
        return _Block(inward, 0.5 * random.standard_normal(units), outward)

    @property
    def described(self) -> list[tuple[int, float]]:
        """Weights of each block, and its change of the stream relative to the stream, [blocks]."""
        stream, described = self._start[:ROWS], []
        for block in self._blocks:
            added = block.change(stream)
            described.append((block.weights, float(np.linalg.norm(added) / np.linalg.norm(stream))))
            stream = stream + added
        return described

    @property
    def accuracy(self) -> float:
        """Accuracy of the teacher on the held-out inputs."""
        return self._accuracy(self._logits)

    def measure(self, choices: Sequence[BlockChoice]) -> StudentScore:
        """Return accuracy and size of the student with these choices, [blocks]."""
        key = tuple(choices)
        if key not in self._measured:
            pairs = zip(self._blocks, key, strict=True)
            kept = [(block.reduced(choice), choice.bits) for block, choice in pairs if choice.share > 0]
            features = self._features([block for block, _ in kept])
            logits = features @ _fitted(features[:ROWS], self._logits[:ROWS])
            whole = sum(block.weights for block in self._blocks) + self._rest
            left = sum(block.weights * bits / FULL_BITS for block, bits in kept) + self._rest
            self._measured[key] = StudentScore(self._accuracy(logits), left / whole)
        return self._measured[key]

    def reward(self, measured: StudentScore) -> float:
        """Return C (2 - C) A / A_teacher, where C is one minus the size (paper 351)."""
        compression = 1.0 - measured.size
        return compression * (2.0 - compression) * measured.accuracy / self.accuracy

    def _features(self, blocks: Iterable[_Block]) -> Array:
        """Return the end of the stream and a constant, [rows, stream + 1]."""
        stream = self._start
        for block in blocks:
            stream = stream + block.change(stream)
        return np.concatenate([stream, np.ones((len(stream), 1))], axis=1)

    def _accuracy(self, logits: Array) -> float:
        return float((logits[ROWS:].argmax(axis=1) == self._classes[ROWS:]).mean())


def _fitted(features: Array, targets: Array) -> Array:
    """Return the ridge regression of targets on features, [features, targets]."""
    penalty = _RIDGE * len(features) * np.eye(features.shape[1])
    solution: Array = np.asarray(np.linalg.solve(features.T @ features + penalty, features.T @ targets), np.float64)
    return solution


@lru_cache(maxsize=4096)
def teacher_network(seed: int, blocks: int) -> TeacherNetwork:
    """Return the teacher of a seed, built once; its blocks are at least one."""
    return TeacherNetwork(seed, blocks)


def pareto(points: Sequence[StudentScore]) -> list[int]:
    """Return the indices of the points that no other point surpasses, by increasing size.

    A point surpasses another if it is as accurate and as small, and better in one of the two. Of equal points, the
    first counts.
    """
    order = sorted(range(len(points)), key=lambda index: (points[index].size, -points[index].accuracy, index))
    front: list[int] = []
    for index in order:
        if not front or points[index].accuracy > points[front[-1]].accuracy:
            front.append(index)
    return front


class AccuracyPredictor:
    """A ridge regression that predicts the accuracy of students from a few that were measured (paper 360).

    Its features state the choice of each block, one for each option. The students that are measured are drawn at
    random.
    """

    def __init__(self, teacher: TeacherNetwork, students: Sequence[tuple[BlockChoice, ...]], count: int) -> None:
        """Fit the predictor.

        Args:
            teacher: the teacher.
            students: all choices, [students][blocks].
            count: number of students to measure; all of them if there are fewer.
        """
        options = sorted({choice for student in students for choice in student}, key=lambda each: vars(each).__repr__())
        self._places = {option: place for place, option in enumerate(options)}
        drawn = np.random.default_rng(len(students)).permutation(len(students))[:count]
        features = np.stack([self._features(students[index]) for index in drawn])
        targets = np.array([teacher.measure(students[index]).accuracy for index in drawn])
        self._mean = float(targets.mean())
        self._centre = features.mean(axis=0)
        centred = features - self._centre
        penalty = _RIDGE * np.eye(features.shape[1])
        self._weights: Array = np.linalg.solve(centred.T @ centred + penalty, centred.T @ (targets - self._mean))

    def __call__(self, student: Sequence[BlockChoice]) -> float:
        """Return the predicted accuracy of a student."""
        return self._mean + float((self._features(student) - self._centre) @ self._weights)

    def _features(self, student: Sequence[BlockChoice]) -> Array:
        row = np.zeros((len(student), len(self._places)))
        row[np.arange(len(student)), [self._places[choice] for choice in student]] = 1.0
        return row.ravel()
