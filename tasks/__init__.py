"""The steps of the pipeline (`steps/`), and the packages that support them.

    steps        one file each: load inputs, call models/, log, return the result
    runner/step  the common part of every step: key, folder, run, result
    compute      learners, engines and GPUs
    registered   files of registered models, their export and reproduction
    gate, people decisions on candidates, and comparisons by people
    pages        descriptions, pages and plots
    tracking     the only package that imports MLflow

`data/versions` is the only module that imports DVC, `data/expectations` the only one that imports Great Expectations,
`state/storage` the only one that imports boto3, and `compute/cluster` the only one that imports Ray.
"""

from tasks.host.environment import QUIET, set_where_unset

set_where_unset(QUIET)
