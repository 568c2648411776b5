"""The steps of the pipeline (`steps/`), and the modules that serve them.

    steps        one file each: load inputs, call models/, log, return the result
    runner/step  what every step has in common: key, folder, run, result
    tracking     MLflow; data/versions: DVC; data/expectations: Great Expectations; state/storage: S3. Other modules
                 do not import these.

The other files read what steps work on (prompts, data sources, registered policies), open what they work with (learner,
engine), and write what a person reads (descriptions, pages, plots).
"""

from tasks.host.environment import QUIET, set_where_unset

set_where_unset(QUIET)
