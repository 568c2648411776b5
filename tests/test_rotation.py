"""Rotation of tests: every case has its turn, and `make test` leaves the others out by their marker."""

from pathlib import Path

import pytest

from tests.support.rotation import first, rotate, turn


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("case", range(7))
def test_a_case_that_is_not_thorough_is_of_this_turn(case: int, request: pytest.FixtureRequest) -> None:
    thorough = request.node.get_closest_marker("thorough") is not None
    begins = first(request.node.nodeid.partition("[")[0])
    assert thorough == bool((begins + case - turn(request.config.rootpath)) % 3)


class Case:
    """The part of a test's case that `rotate` reads and marks."""

    def __init__(self, number: int) -> None:
        self.nodeid = f"test_file.py::test_name[{number}]"
        self.thorough = False

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return pytest.mark.rotating(of=3).mark

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.thorough = marker.name == "thorough"


def test_every_case_has_one_turn_of_three() -> None:
    ran = []
    for number in (229, 230, 231):
        cases = [Case(case) for case in range(7)]
        rotate(cases, number)
        ran += [case.nodeid for case in cases if not case.thorough]
    assert sorted(ran) == [Case(case).nodeid for case in range(7)]


class Plain(Case):
    """A test without cases."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.nodeid = f"test_file.py::test_{number}"


def test_every_test_of_a_file_has_one_turn_of_three() -> None:
    ran: list[list[str]] = []
    for number in (229, 230, 231):
        tests = [Plain(test) for test in range(7)]
        rotate(tests, number)
        ran.append([test.nodeid for test in tests if not test.thorough])
    assert sorted(name for names in ran for name in names) == [Plain(test).nodeid for test in range(7)] and all(ran)


def test_first_cases_are_not_all_of_one_turn() -> None:
    tests = [Plain(0) for _ in range(60)]
    for number, test in enumerate(tests):
        test.nodeid = f"test_{number}.py::test_name"
    rotate(tests, 0)
    assert 10 < sum(not test.thorough for test in tests) < 30


class Together(Case):
    """A test that has its turn together with others."""

    def __init__(self, name: str) -> None:
        super().__init__(0)
        self.name = name

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return pytest.mark.rotating(of=2, together=self.name).mark


def test_what_is_together_has_its_turn_together() -> None:
    ran: list[set[str]] = []
    for number in (229, 230):
        tests = [Together(name) for name in ("server", "kill", "server", "kill", "browser")]
        rotate(tests, number)
        ran.append({test.name for test in tests if not test.thorough})
        assert sum(not test.thorough for test in tests) == sum(test.name in ran[-1] for test in tests)
    assert ran == [{"kill"}, {"browser", "server"}]


def test_a_folder_without_git_is_at_turn_zero(tmp_path: Path) -> None:
    assert turn(tmp_path) == 0
