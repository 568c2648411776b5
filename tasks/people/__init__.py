"""Comparisons by people: pairs of answers, the review queue, and what the reviewers answered."""
