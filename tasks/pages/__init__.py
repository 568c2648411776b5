"""Descriptions, names and figures of runs and versions, most of them pure functions from plain data to text."""
