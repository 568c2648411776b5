"""The environment `rank_attack`: BM25 by hand, edits that keep the meaning, the best edits by enumeration."""

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from models.agents.environments.rank_attack import STOP, RankAttack
from models.agents.play.black_box_ranker import BlackBoxRanker, SurrogateRanker
from models.agents.play.documents import as_line, words_of
from models.agents.small_sets.rank_attack import SET, SYNONYMS
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer
from models.method.problem import Problem

TEXTS = ("the auto is here . a home today", "one auto and one road", "the villa by the lake", "cash for the kid")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rank_attack") / "documents.jsonl"
    file.write_text("".join(as_line(text) + "\n" for text in SET.documents()[1]))
    return file


def make(documents: Path, **settings: object) -> RankAttack:
    return replace(RankAttack(documents=str(documents), synonyms=SYNONYMS), **settings)  # type: ignore[arg-type]


def play(environment: RankAttack, problem: Problem, turns: list[str]) -> EnvironmentAnswer:
    opened = environment.open(problem)
    opened.reset(0)
    answer: EnvironmentAnswer = "", 0.0, False, False, {}
    for turn in turns:
        answer = opened.step(turn)
        if answer[2]:
            break
    return answer


def tasks(count: int) -> list[Problem]:
    random = Random(7)
    drawn = [SET.draw(random) for _ in range(count)]
    return [Problem(f"p{number}", task.prompt, task.answer) for number, task in enumerate(drawn)]


def test_a_score_is_bm25_by_hand_and_a_word_at_the_beginning_counts_more() -> None:
    plain, leading = BlackBoxRanker(TEXTS, 0.0), BlackBoxRanker(TEXTS, 1.0)
    words = words_of(TEXTS[1])
    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))  # two of four documents hold `auto`
    mean = (7 + 5 + 5 + 4) / 4
    norm = 1.2 * (0.25 + 0.75 * 5 / mean)
    assert plain.score(["auto"], words) == pytest.approx(idf * 2.2 / (1 + norm))
    assert leading.score(["auto"], words) == pytest.approx(idf * 2 * 2.2 / (2 + norm))
    assert plain.score(["auto", "none"], words) == plain.score(["auto"], words)


def test_a_rank_counts_the_documents_with_at_least_the_same_score() -> None:
    ranker = BlackBoxRanker(TEXTS, 0.0)
    assert ranker.rank("kid", "no word of it") == 5
    assert ranker.rank("kid", TEXTS[3]) == 2 and ranker.rank("kid", "kid kid") == 1


def test_edits_keep_the_groups_of_synonyms_of_all_sentences(documents: Path) -> None:
    environment, random = make(documents), Random(1)
    group_of = {word: group for group in SYNONYMS for word in group}

    def meaning(text: str) -> Counter[tuple[str, ...]]:
        return Counter(tuple(str(group_of.get(word, word)) for word in part.split()) for part in text.split(STOP))

    for problem in tasks(10):
        document = first = json.loads(problem.answer)["document"]
        for _ in range(30):
            old, new = random.choice(document.split()), random.choice(random.choice(SYNONYMS))
            edit = random.choice([f"{old} {new}", f"front {random.randint(0, 5)}"])
            document = environment._edited(document, edit) or document
        assert meaning(document) == meaning(first)


@pytest.mark.parametrize("turn", ["car house", "car", "tour trip", "front 0", "front 9", "front x", "car auto now", ""])
def test_what_is_no_edit_changes_nothing_and_counts_as_an_edit(documents: Path, turn: str) -> None:
    answer = json.dumps({"document": "the car is old . a shop here", "queries": ["auto shop"]})
    environment = make(documents, edits=2)
    opened = environment.open(Problem("p", "", answer))
    opened.reset(0)
    first = opened.step(turn)
    assert first[:3] == ("error: no edit of this document", 0.0, False)
    assert first[4]["state"] == "the car is old . a shop here"
    assert opened.step(turn)[1:3] == (0.0, True)


def test_an_episode_without_edits_earns_nothing_and_is_repeated_exactly(documents: Path) -> None:
    environment, problem = make(documents), tasks(1)[0]
    assert play(environment, problem, ["done"])[1] == 0.0
    edits = list(replace(SET, sound=1.0).script(Random(0), SET.draw(Random(7)))[1])
    assert play(environment, problem, edits) == play(environment, problem, edits)


def test_the_best_edits_by_enumeration_are_the_words_of_the_queries(documents: Path) -> None:
    """All synonyms of all words and all orders of the sentences are ranked by the black box."""
    environment = make(documents, reward="ranks", top=1, share=1.0)
    box = environment._box()
    for problem in tasks(4):
        known = json.loads(problem.answer)
        sentences = known["document"].split(STOP)
        groups = [next(group for group in SYNONYMS if set(group) & set(part.split())) for part in sentences]
        ranks = {}
        for choice in product(*groups):
            for order in permutations(range(len(sentences))):
                parts = [
                    " ".join(word if old in groups[n] else old for old in sentences[n].split())
                    for n, word in enumerate(choice)
                ]
                text = STOP.join(parts[n] for n in order)
                ranks[choice, order] = sum(box.rank(query, text) for query in known["queries"])
        best_words = {choice for (choice, _), rank in ranks.items() if rank == min(ranks.values())}
        wanted = set(" ".join(known["queries"]).split())
        assert any(set(choice) == wanted for choice in best_words) and min(ranks.values()) == 2
        edits = [f"{next(w for w in group if w in known['document'].split())} {word}"
                 for group in groups for word in group if word in wanted]  # fmt: skip
        answer = play(environment, problem, [*edits, "done"])
        assert answer[1] == pytest.approx(1.0, abs=0.05) and answer[4]["solved"]


def test_scripted_edits_succeed_and_random_edits_rarely(documents: Path) -> None:
    environment = make(documents, top=2, share=1.0)
    shares = []
    for sound in (0.0, 1.0):
        small, random = replace(SET, sound=sound), Random(5)
        solved = []
        for _ in range(30):
            task = small.draw(random)
            problem = Problem("p", task.prompt, task.answer)
            solved.append(bool(play(environment, problem, list(small.script(random, task)[1]))[4]["solved"]))
        shares.append(sum(solved) / len(solved))
    assert shares[1] >= 0.9 and shares[0] <= 0.3


def test_later_queries_decide_the_goal_of_a_dynamic_group(documents: Path) -> None:
    known = {"document": "the car is old . a shop here", "queries": ["auto"], "later": ["store"]}
    problem = Problem("p", "", json.dumps(known))
    text = "the auto is old . a shop here"
    environment = make(documents, group="dynamic", top=1, edits=2)
    answer = play(environment, problem, ["car auto", "done"])
    assert answer[0] == f"ranks {environment._box().rank('store', text)}"
    assert answer[1] > 0 and not answer[4]["solved"]


def test_the_surrogate_ranks_unseen_queries_as_the_black_box_does() -> None:
    texts = SET.documents()[1]
    box = BlackBoxRanker(texts, 1.0)
    surrogate, random = SurrogateRanker(box, 48), Random(99)
    correlations = []
    for _ in range(10):
        query = " ".join(random.sample(words_of(random.choice(texts)), 2))
        pairs = np.array([(box.rank(query, text), surrogate.rank(query, text)) for text in texts])
        correlations.append(np.corrcoef(pairs.T)[0, 1])
    assert min(correlations) > 0.8
    assert surrogate.weights[0] > 0 and surrogate.weights[1] > 0


def test_the_surrogate_sees_ranks_alone() -> None:
    class Scaled(BlackBoxRanker):
        def score(self, query: object, words: object) -> float:
            return super().score(query, words) ** 3  # type: ignore[arg-type]

    texts = SET.documents()[1][:30]
    weights = [SurrogateRanker(kind(texts, 1.0), 16).weights for kind in (BlackBoxRanker, Scaled)]
    assert weights[0].tolist() == weights[1].tolist()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"synonyms": (("car", "auto"), ("auto", "van"))}, "synonyms: 'auto' occurs twice"),
        ({"synonyms": (("car", "big auto"),)}, "synonyms: 'big auto' is not a single word in lower case"),
        ({"sha256": "0" * 64}, "other content than sha256 says"),
    ],
)
def test_bad_settings_are_refused_in_a_line(documents: Path, settings: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        make(documents, **settings)


def test_missing_documents_and_later_queries_are_refused_in_a_line(documents: Path) -> None:
    with pytest.raises(UserError, match="name the documents among which the edited one is ranked"):
        RankAttack().try_out()
    with pytest.raises(UserError, match="problem p: it has no later queries"):
        make(documents, group="dynamic").open(Problem("p", "", '{"document": "a", "queries": ["b"]}'))
    with pytest.raises(UserError, match="problem p: the answer is none of environment rank_attack"):
        make(documents).open(Problem("p", "", "{}"))
