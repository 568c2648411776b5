"""The task set `sounds`: spectrograms show the sounds, and answers follow from the lists."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from models.base.images import images_in
from models.datasets.schema import SOUND
from models.task_sets.drawing import make_rows
from models.task_sets.sounds import (
    BETWEEN,
    EDGE,
    KINDS,
    MISHEARD,
    WINDOW,
    SoundsSettings,
    clip,
    questions,
    samples_of,
    spectrogram,
)

SETTINGS = SoundsSettings(
    problems={"train": 400, "validation": 40, "gate": 40},
    demonstrations={"train": 800},
    clips=900,
    structured=0.5,
    misheard=0.5,
)


def loudness(sounds: tuple[str, ...], seed: int) -> np.ndarray:
    """Return the darkness of a clip's picture, [frequencies from the lowest, frames]."""
    picture = spectrogram(samples_of(sounds, Random(seed)))
    return 255.0 - np.asarray(picture)[::-1, :, 0].astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_a_tone_is_loudest_at_its_frequency_in_every_frame(seed: int) -> None:
    for kind, frequencies in (("low", range(2, 8)), ("high", range(20, 28))):
        heard = loudness((kind,), seed)
        frames = np.nonzero(heard.max(0) > 128)[0][1:-1]  # the first and the last one are partly silent
        assert len(frames) > EDGE // 3
        assert {*heard[:, frames].argmax(0).tolist()} <= {*frequencies}
    for kind, sign in (("rising", 1), ("falling", -1)):
        heard = loudness((kind,), seed)
        places = heard[:, heard.max(0) > 128].argmax(0)[1:-1]
        assert (sign * np.diff(places) >= 0).all() and sign * (places[-1] - places[0]) > EDGE // 3


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_all_frequencies_and_clicks_have_them_in_single_frames(seed: int) -> None:
    noise, clicks = loudness(("noise",), seed), loudness(("clicks",), seed)
    frames = noise.mean(0) > 64
    assert frames.sum() > EDGE // 3 and (noise[:, frames].mean(1) > 64).all()
    hit = clicks.min(0) > 0
    assert hit.sum() >= 3 and not (hit[1:] & hit[:-1]).any()


def test_sounds_follow_each_other_in_the_order_of_their_list() -> None:
    low_high, high_low = (loudness(pair, 3) for pair in (("low", "high"), ("high", "low")))
    half = EDGE // 2
    for heard, first_is_low in ((low_high, True), (high_low, False)):
        low_part, high_part = heard[:10].sum(0), heard[18:].sum(0)
        assert (low_part[:half].sum() > low_part[half:].sum()) == first_is_low
        assert (high_part[:half].sum() > high_part[half:].sum()) != first_is_low


def test_rounding_does_not_change_a_picture() -> None:
    for number in range(50):
        sounds, _ = clip(1, number)
        samples = samples_of(sounds, Random(number))
        assert samples.shape == (EDGE * WINDOW,)
        other = spectrogram(samples * (1 + 1e-12))
        assert (np.asarray(other) == np.asarray(spectrogram(samples))).all()


def test_questions_have_the_answers_of_the_list() -> None:
    assert questions(("low", "noise", "rising")) == {
        "what comes first": "low",
        "what comes last": "rising",
        "how many sounds": "3",
        "what comes after the low": "noise",
        "what comes before the noise": "low",
        "what comes after the noise": "rising",
        "what comes before the rising": "noise",
    }


def test_demonstrations_are_lists_or_answers_and_some_lists_have_a_wrong_sound() -> None:
    rows = make_rows(SETTINGS)
    answers = {row["prompt"]: row["answer"] for row in rows["problems"]["train"]}
    clips = {images_in(reference)[0]: sounds for sounds, reference in (clip(1, number) for number in range(900))}
    flaws = Counter[str]()
    for row in rows["demonstrations"]["train"]:
        listed, _, answer = str(row["completion"]).partition("#### ")
        sounds = tuple(listed.strip().split(BETWEEN))
        flaws["plain" if not listed else str(row["flaw"])] += 1
        if not listed:
            assert answer == answers[row["prompt"]]
            continue
        true = clips[images_in(str(row["prompt"]))[0]]
        assert {*sounds} <= {*KINDS} and len(sounds) == len(true)
        wrong = sum(listed_sound != true_sound for listed_sound, true_sound in zip(sounds, true, strict=True))
        assert wrong == (row["flaw"] == MISHEARD)
        if row["flaw"] == SOUND:
            assert answer == answers[row["prompt"]]
    assert 320 < flaws["plain"] < 480 and 140 < flaws[MISHEARD] < 260
