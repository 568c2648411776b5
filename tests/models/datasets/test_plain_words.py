"""Plain-words tasks: the answer is the prompt with every learned word replaced by its plain word."""

from random import Random

from models.datasets.schema import SOUND
from models.task_sets.plain_words import ALL, PlainWordsSettings, in_plain_words

SETTINGS = PlainWordsSettings(problems={}, learned=0.5, other=0.5)


def test_a_sentence_with_every_learned_word_replaced_is_its_plain_one() -> None:
    random, levels = Random(0), set()
    for _ in range(300):
        task = SETTINGS.draw(random)
        assert in_plain_words(task.prompt, ALL) == task.answer == task.steps[0]
        assert not set(ALL) & set(task.answer.split())
        levels.add(task.level)
    assert levels == {1, 2}


def test_a_sound_demonstration_is_the_plain_sentence_and_a_flawed_one_is_not() -> None:
    random, flaws = Random(1), []
    for _ in range(600):
        task = SETTINGS.draw(random)
        flaw, (text,) = SETTINGS.demonstrate(random, task)
        assert (text == task.answer) == (flaw == SOUND)
        if flaw == "learned":  # only learned words of the prompt remain; the rest is the answer
            assert in_plain_words(text, ALL) == task.answer
        flaws.append(flaw)
    assert set(flaws) == {SOUND, "learned", "other"}


def test_a_word_is_replaced_whole_or_not_at_all() -> None:
    assert in_plain_words("prior to the priority", {"prior": "x"}) == "x to the priority"
    assert in_plain_words("prior to the infant", {"prior to": "before", "infant": "baby"}) == "before the baby"
    assert in_plain_words("", ALL) == ""
