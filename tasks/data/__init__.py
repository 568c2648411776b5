"""Versions of the data: added, prepared by DVC, validated by Great Expectations, compared."""
