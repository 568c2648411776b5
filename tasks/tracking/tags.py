"""The names of the facts that Rewardflow writes down, one sentence each: what lineage, reuse and review ask for.

Tags on runs say who wrote them. Facts about model versions say where a model comes from and why it stands where it
does: the ten that a person needs are tags, the others stand in the version's record (tasks.tracking.model_files).
"""

from __future__ import annotations

# On runs.
PID = "rewardflow.pid"
"""Process id of the writer; with HOST and STARTED it tells a running run from one whose process died."""
HOST = "rewardflow.host"
"""Host name of the writer: another host's processes cannot be judged from here."""
STARTED = "rewardflow.process_started"
"""Start of the writer's process, seconds since 1970: process ids are used again."""
PLACE = "rewardflow.process_place"
"""Machine, boot and process namespace of the writer: two containers may have one host name, and process ids are
counted anew in each."""
STATE_FOLDER = "rewardflow.state_folder"
"""Mark of the state folder that the run was made with: `gc` deletes models of its own folder alone."""
STEP = "rewardflow.step"
"""On a child run: the step of the flow that it records."""
ENDED_BY = "rewardflow.ended_by"
"""On a run that was swept: why it was ended from outside."""
REUSED = "rewardflow.reused_from"
"""On a child run whose step was not run again: the run whose result was taken."""

PRECISION = "rewardflow.precision"
"""On a child run that learned: float32, or bfloat16 for matrix products under autocast."""
PRECISION_OF = "rewardflow.precision_of"
"""Beside it: the shape of the model that learned, by which the choice is known again on any machine."""

PREFECT_RUN = "rewardflow.prefect_run"
"""On a flow's run: address of the Prefect run that executed it, where its server outlives it."""
# On a flow's run, for the list of runs: names as short as a column is wide.
RUN_VERDICT = "verdict"
"""What became of the candidate: promoted, kept, refused, waiting, or nothing changed."""
RUN_DIFFERENCE = "difference"
"""Candidate minus what it was compared with, on the gate's metric, with its interval."""
RUN_VERSION = "version"
"""Number of the policy version that the run made or met again."""
RUN_DATA = "data"
"""Beginning of DVC's hash of the prepared data."""

STRATEGY = "rewardflow.strategy"
"""On the run of an evaluation with a strategy: its name."""

# On runs and on model versions.
RECIPE = "rewardflow.recipe"
"""Name of the recipe."""
RECIPE_SHA256 = "rewardflow.recipe_sha256"
"""Hash of the whole recipe after defaults and overrides."""
GIT_COMMIT = "rewardflow.git_commit"
"""Commit of the code, with "-dirty" behind it where the work tree differed."""
UNPINNED = "rewardflow.unpinned"
"""Why no commit holds what was run, code or data; not there where a commit does."""
DATA_REVISION = "rewardflow.data_revision"
"""DVC revision (git commit or tag) of the data that was read."""
PLACEMENT = "rewardflow.placement"
"""On a flow's run: how many learners and engines it had, and of how many GPUs; not there where one process was all."""
SEED = "rewardflow.seed"
"""Seed of the run."""
BASE_VERSION = "rewardflow.base_version"
"""NAME/VERSION of the registered model that the policy was trained on from; not there where it began otherwise."""
BASE_SOURCE = "rewardflow.base_source"
"""Source of the base model that the policy was trained from: its name, type, package and the SHA-256 of its GGUF file;
not there for a base without such a record."""
FROZEN = {"teacher": "rewardflow.teacher", "contrast": "rewardflow.contrast", "judge": "rewardflow.judge"}
"""Content hash of a model that a policy was distilled from or judged by, or the address of a server, by role."""

# On model versions.
WEIGHTS_SHA256 = "rewardflow.weights_sha256"
"""Content hash of the model folder: equal weights are registered once."""
RUN = "rewardflow.flow_run"
"""MLflow run of the whole flow that made the version."""
REWARD_MODEL_VERSION = "rewardflow.reward_model_version"
"""NAME/VERSION of the reward model that the policy was trained against."""
HELDOUT_ACCURACY = "rewardflow.heldout_accuracy"
"""Held-out accuracy with its interval, as text: pairs for a reward model, answers for a policy."""
EVALUATION_RUN = "rewardflow.evaluation_run"
"""MLflow run of the evaluation that the gate read."""
IMPROVEMENT = "rewardflow.improvement"
"""Difference to what it was compared with (champion or base), with its interval, as text."""
COMPARED_WITH = "rewardflow.compared_with"
"""What it was compared with: champion's version, or the base model."""
JUDGED_AGAINST = "rewardflow.judged_against"
"""Number of the version that was champion when it was judged; empty where there was none."""
DECISION = "rewardflow.decision"
"""Decision on the version: promoted, kept, refused or waiting (for a person's approval)."""
VERDICT_RECORD = "rewardflow.verdict_record"
"""The whole verdict as JSON: decision, reason, policy compared with, interval, checks, error budget, ruling."""
PAGE = "rewardflow.page"
"""Data of the version's page as JSON: name -> recipe, data, run and the like."""
PROMOTED_AT = "rewardflow.promoted_at"
"""When the version last became champion, UTC."""
PROMOTED_BY = "rewardflow.promoted_by"
"""Why it became champion: gate, a person's command, or a rollback."""
BY_HAND = "rewardflow.by_hand"
"""The gate's judgement of the version, which a person had made champion, as JSON."""
REPRODUCED = "rewardflow.reproduced"
"""Whether it came out the same when it was last trained again, when, where and by whom."""
PROBLEM = "rewardflow.approval_problem"
"""Why the word that a person gave on MLflow's page was not carried out, and that word."""
AUDITED = "rewardflow.audited"
"""Number and hash of the newest entry in the audit log: of a version about it, of a model of all."""
REPLACED = "rewardflow.replaced"
"""The champion that this version took the place of."""
REPLACED_BY = "rewardflow.replaced_by"
"""The version that took this one's place, and when."""

FOR_A_PERSON = (
    DECISION,
    IMPROVEMENT,
    HELDOUT_ACCURACY,
    PROMOTED_AT,
    PROMOTED_BY,
    RECIPE,
    GIT_COMMIT,
    DATA_REVISION,
    RUN,
    WEIGHTS_SHA256,
)
"""Facts about a version that are tags: ten at most, or nobody reads them. The last one is searched for."""

REPORTS = "rewardflow.reports"
"""On a flow's run: the folder of an S3 bucket that its reports were uploaded to."""
REVIEWS = "rewardflow.reviews"
"""On a flow's run: artifacts with the pairs that people were asked about, as a JSON list."""

# On the registered model.
LOOKS = "rewardflow.looks."
"""Beginning of the keys that count the looks at a gate split, whose digest follows: how many, what they spent of the
error budget, and the weights that were looked at last."""
HISTORY = "rewardflow.champion_history"
"""All changes of the champion, newest first, one JSON object a line: time, version, reason. Aliases keep no history."""
PROMOTING = "rewardflow.promoting"
"""The version that is being made champion, by whom and why, as JSON; there between the alias and its line in the
history."""
ANCHORED = "rewardflow.anchor"
"""The version that Rewardflow last gave the alias anchor, or saw it on: what a deleted alias is restored by."""
WAITS_FOR_GATE = "rewardflow.waits_for_gate"
"""The version that a person made champion and that the gate has not judged yet, and the champion before it."""

# On the registered model that is an audit log.
AUDIT = "rewardflow.audit."
"""Prefix: one entry each, by its number."""

# On the registered model that is a lock.
LOCK_TOKEN = "rewardflow.lock_token"
"""What the holder of a promotion lock knows it by."""
LOCK_BEAT = "rewardflow.lock_beat"
"""A number that grows while the holder works."""

# On a flow's run.
CHAMPION_NOTICED = "rewardflow.champion_noticed"
"""What was done to the champion alias outside Rewardflow, where this run noticed it."""
CHAMPION_JUDGED = "rewardflow.champion_judged"
"""What the gate says of a champion that was set by hand, where this run judged it."""
