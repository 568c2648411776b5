"""Questions about short sounds, which are shown as spectrograms: a picture stands for what is heard.

    <image:9f86...> what comes after the rising      low ; rising ; noise #### noise
    <image:77b2...> what comes last                  #### falling

A clip has one to three different sounds after each other: a low or a high tone, a rising or a falling one, noise, or
clicks. The picture is the spectrogram of its samples: time goes to the right, low frequencies are at the bottom, loud
is dark. The level is the number of sounds.

Demonstrations are structured, a list of the sounds and then the answer, or unstructured, the answer alone. The flaw
`misheard`: one sound of the list is another one, and the answer follows from the list.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from models.base.images import reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.scenes import split_of_picture

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("low", "high", "rising", "falling", "noise", "clicks")
BETWEEN = " ; "
"""Text between two sounds of a list."""
MISHEARD = "misheard"
EDGE = 32
"""Number of frames and of frequencies of a spectrogram: its width and height in pixels."""
WINDOW = 2 * EDGE
"""Samples of a frame, which begins this number of samples after the last one."""
LEVELS = 8
"""Number of grey levels: coarse, so that rounding in the transform does not change a picture."""
RANGE = 40.0
"""Decibels from the loudest to the softest level."""


class SoundsSettings(TaskSettings):
    """The section `sounds` of params.yaml."""

    clips: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of clips that prompts are drawn about, of all splits together."""
    structured: Share
    """Share of the demonstrations that list the sounds first."""
    misheard: Share
    """Share of the structured demonstrations with a wrong sound."""

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its clip."""
        return split_of_picture(task.prompt)

    def draw(self, random: Random) -> Task:
        """Draw a question about a clip."""
        sounds, reference = clip(self.seed, random.randrange(self.clips))
        question, answer = random.choice(sorted(questions(sounds).items()))
        return Task(f"{reference} {question}", answer, len(sounds), (BETWEEN.join(sounds),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a demonstration, and its flaw, if it has one."""
        if random.random() >= self.structured:
            return SOUND, (f"#### {task.answer}",)
        sounds, flaw, answer = task.steps[0].split(BETWEEN), SOUND, task.answer
        if random.random() < self.misheard:
            flaw, place = MISHEARD, random.randrange(len(sounds))
            sounds[place] = random.choice([kind for kind in KINDS if kind not in sounds])
            answer = questions(tuple(sounds)).get(task.prompt.partition(" ")[2], random.choice(sounds))
        return flaw, (f"{BETWEEN.join(sounds)} #### {answer}",)


def questions(sounds: tuple[str, ...]) -> dict[str, str]:
    """Return every question about a clip, and its answer."""
    made = {"what comes first": sounds[0], "what comes last": sounds[-1], "how many sounds": str(len(sounds))}
    for before, after in pairwise(sounds):
        made[f"what comes after the {before}"] = after
        made[f"what comes before the {after}"] = before
    return made


@lru_cache(maxsize=1 << 17)
def clip(seed: int, number: int) -> tuple[tuple[str, ...], str]:
    """Return the sounds of a clip and the reference to its spectrogram; the same arguments give the same clip."""
    random = Random(f"{seed}/clip/{number}")
    sounds = tuple(random.sample(KINDS, random.randint(1, 3)))
    return sounds, reference_to(png_of(spectrogram(samples_of(sounds, random))))


def samples_of(sounds: tuple[str, ...], random: Random) -> np.ndarray:
    """Return the samples of sounds after each other with pauses, [EDGE * WINDOW], float64."""
    samples = np.zeros(EDGE * WINDOW)
    room = len(samples) // len(sounds)
    for number, kind in enumerate(sounds):
        length = int(room * random.uniform(0.5, 0.8))
        begin = number * room + random.randint(0, room - length)
        samples[begin : begin + length] = random.uniform(0.5, 1.0) * sound(kind, length, random)
    return samples


def sound(kind: str, length: int, random: Random) -> np.ndarray:
    """Return the samples of one sound, [length], at most about 1 in size."""
    if kind == "noise":
        return np.array([random.gauss(0.0, 0.6) for _ in range(length)])
    if kind == "clicks":
        apart = random.randint(2 * WINDOW, 3 * WINDOW)
        return np.array([8.0 * (at % apart == apart // 2) for at in range(length)])
    low, high = random.uniform(3.0, 7.0), random.uniform(21.0, 27.0)
    begin, end = {"low": (low, low), "high": (high, high), "rising": (low, high), "falling": (high, low)}[kind]
    phase, made = 0.0, []
    for at in range(length):
        made.append(math.sin(phase))
        phase += 2 * math.pi * (begin + (end - begin) * at / length) / WINDOW
    return np.array(made)


def spectrogram(samples: np.ndarray) -> Image:
    """Draw the power of each frame and frequency on a scale of decibels; zero frequency is left out.

    Args:
        samples: [EDGE * WINDOW].
    """
    from PIL import Image

    frames = samples.reshape(EDGE, WINDOW) * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, axis=1)[:, 1:]) ** 2
    loudness = 10 * np.log10(power / (WINDOW / 4) ** 2 + 1e-12)
    level = np.clip(np.round((loudness / RANGE + 1) * (LEVELS - 1)), 0, LEVELS - 1)
    grey = (255 - level * 255 // (LEVELS - 1)).astype(np.uint8)
    return Image.fromarray(grey.T[::-1]).convert("RGB")


SETTINGS = SoundsSettings
