"""The steps of the pipeline (`steps/`), and beside them what serves them.

steps     one file each: load inputs, call models/, log, hand on
step      what every step has in common: key, folder, run, result
tracking  MLflow; versions: DVC; expectations: Great Expectations; storage: S3. Nobody else imports these.

The other files read what steps work on (prompts, data sources, registered policies), open what they work with (learner,
engine), and write what a person reads (descriptions, pages, plots).
"""

from tasks.host.environment import QUIET, set_where_unset

set_where_unset(QUIET)
