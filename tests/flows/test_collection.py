"""Tests of garbage collection: off while a command imports, on again in long-running commands."""

import gc

from flows.runtime import collection


def test_what_is_imported_is_left_out_of_the_collections_that_begin_again():
    try:
        collection.postpone()
        assert not gc.isenabled()
        before = gc.get_freeze_count()
        kept = [[number] for number in range(1000)]
        collection.begin()
        assert gc.isenabled() and gc.get_freeze_count() > before + len(kept) / 2  # freed objects leave the count
    finally:
        gc.enable()


def test_a_process_that_collects_already_is_left_as_it_is():
    before = gc.get_freeze_count()
    collection.begin()
    assert gc.isenabled() and gc.get_freeze_count() <= before
