"""Comparisons by people: pairs of answers, the review queue, and the reviewers' answers."""
