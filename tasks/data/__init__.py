"""Versions of the data: adding files, preparation by DVC, validation by Great Expectations, comparison."""
