"""Tests of the project. `tests.support` contains the code that they share."""
