"""Tests of papers' claims on a small task."""
