"""Prompts that name the class of their answer: flawed, rejected and sound answers, and the reference's log-probs."""

from dataclasses import replace

import torch

from models.method.problem import KnownAnswer, Problem
from models.parts.rollouts.conditioned import Conditioned
from models.parts.rollouts.dataset import Dataset
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_models import contents
from tests.support.tiny_resources import CODEC, make_resources

RESOURCES = make_resources()
TEXTS = ["4 + 7 #### 7", "1 #### 2"]
IDS = [tuple(ids) for ids in CODEC.completions(TEXTS)]


def asked(*known: KnownAnswer) -> list[Problem]:
    return [replace(PROBLEMS[0], known=known)]


SOUND = KnownAnswer("demonstration", IDS[0], TEXTS[0], reference_log_probs=torch.full((len(IDS[0]),), -1.0))
FLAWED = replace(SOUND, completion=IDS[1], text=TEXTS[1], flaw="slip")


def test_only_flawed_answers_stand_under_the_prompt_that_says_so() -> None:
    sound, flawed = Conditioned(flawed_prompt="; {prompt} ;")(RESOURCES, asked(SOUND, FLAWED), 0)
    assert sound.problem.tokens == PROBLEMS[0].tokens and sound.completion == IDS[0]
    assert flawed.problem.tokens == tuple(CODEC.prompts([f"; {PROBLEMS[0].prompt} ;"])[0])
    assert flawed.completion == IDS[1] and sound.group == flawed.group


def test_rejected_answers_are_of_the_poor_class_and_chosen_ones_are_not() -> None:
    pair = (replace(SOUND, origin="chosen"), replace(SOUND, origin="rejected"))
    chosen, rejected = Conditioned(reads="preferences")(RESOURCES, asked(*pair), 0)
    assert chosen.problem.tokens == PROBLEMS[0].tokens != rejected.problem.tokens


def test_what_the_reference_said_under_the_plain_prompt_does_not_stand_under_another() -> None:
    sound, flawed = Conditioned()(RESOURCES, asked(SOUND, FLAWED), 0)
    assert sound.reference_log_probs is not None and flawed.reference_log_probs is None


def test_where_nothing_is_flawed_it_is_the_data_as_they_are() -> None:
    conditioned, plain = (source(RESOURCES, asked(SOUND, SOUND), 0) for source in (Conditioned(), Dataset()))
    assert contents(conditioned) == contents(plain)
