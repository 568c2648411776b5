"""Whole trainings with held-out accuracy before and after."""
