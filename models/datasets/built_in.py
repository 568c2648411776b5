"""Data sets that need no path: the stages of the project's own dvc.yaml make them."""

TASK_SETS = (
    "assertions",
    "bandit",
    "calculator",
    "calls",
    "checking",
    "circuits",
    "clinic",
    "combined",
    "comparing",
    "countdown",
    "derivatives",
    "descriptions",
    "follow_ups",
    "formulas",
    "grid_notes",
    "grid_thoughts",
    "grid_walk",
    "habits",
    "instructions",
    "judging",
    "kuhn_poker",
    "kuhn_talk",
    "lookup",
    "mole",
    "options",
    "passages",
    "plain_words",
    "plans",
    "programs",
    "queries",
    "repairs",
    "routing",
    "second_try",
    "shop",
    "snippets",
    "theorems",
    "topics",
    "translation",
    "twenty_questions",
)
"""Those for environments, made by `models.datasets.make_tasks`; each has a file in `models/datasets/task_sets`."""
EXTRA_SETS = ("textworld",)
"""Those that stages of their own make, in a file of stages apart, as they need the packages of an extra."""
BUILT_IN = ("arithmetic", *TASK_SETS)
"""All of them."""
