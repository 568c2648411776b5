"""The names of the facts that Rewardflow records, one sentence each; lineage, reuse and review read them.

Tags on runs identify their writer. Facts about model versions record where a model comes from and why it has its
status: the ten that a person needs are tags, the others are in the version's record (tasks.tracking.model_files).
"""

from __future__ import annotations

# On runs.
PID = "rewardflow.pid"
"""Process id of the writer; with HOST and STARTED it distinguishes a running run from one whose process died."""
HOST = "rewardflow.host"
"""Host name of the writer: processes of another host cannot be checked."""
STARTED = "rewardflow.process_started"
"""Start of the writer's process, seconds since 1970: process ids are reused."""
PLACE = "rewardflow.process_place"
"""Machine, boot and process namespace of the writer: two containers may have one host name, and each counts its own
process ids."""
STATE_FOLDER = "rewardflow.state_folder"
"""Identifier of the state folder that the run was made with: `gc` deletes only models of its own folder."""
STEP = "rewardflow.step"
"""On a child run: the step of the flow that it records."""
ENDED_BY = "rewardflow.ended_by"
"""On a run that was ended by a later flow: the reason."""
REUSED = "rewardflow.reused_from"
"""On a child run whose step was not run again: the run whose result was reused."""

PRECISION = "rewardflow.precision"
"""On a child run that trained: float32, or bfloat16 for matrix products under autocast."""
PRECISION_OF = "rewardflow.precision_of"
"""With PRECISION: the shape of the trained model, so that another machine can find the precision for that shape."""

PREFECT_RUN = "rewardflow.prefect_run"
"""On a flow's run: address of the Prefect run that executed it, if its server outlives it."""
# On a flow's run, for the list of runs: names as short as a column is wide.
RUN_VERDICT = "verdict"
"""Outcome for the candidate: promoted, kept, refused, waiting, or nothing changed."""
RUN_DIFFERENCE = "difference"
"""Candidate minus the policy that it was compared with, on the gate's metric, with its interval."""
RUN_VERSION = "version"
"""Number of the policy version that the run made or reused."""
RUN_DATA = "data"
"""Beginning of DVC's hash of the prepared data."""

MIRRORS = "rewardflow.mirrors"
"""On a flow's run: the mirrors that the user chose, separated by spaces; missing if there was none."""
MIRROR_OFF = "rewardflow.mirror_off"
"""On a flow's run: each mirror that failed during the run, and why; the mirror lacks what came later."""
MIRROR_RUN = "rewardflow.mirror_run"
"""On a step's run that resumed an interrupted one: name of the run in the mirrors, in which it was continued."""

STRATEGY = "rewardflow.strategy"
"""On the run of an evaluation with a strategy: its name."""

# On runs and on model versions.
RECIPE = "rewardflow.recipe"
"""Name of the recipe."""
RECIPE_SHA256 = "rewardflow.recipe_sha256"
"""Hash of the whole recipe after defaults and overrides."""
GIT_COMMIT = "rewardflow.git_commit"
"""Commit of the code, followed by "-dirty" if the work tree differed."""
RELEASE = "rewardflow.release"
"""Installed release of the code that ran; missing if it ran from a clone."""
UNPINNED = "rewardflow.unpinned"
"""Why no commit contains the code or data of the run; missing if a commit does."""
DATA_REVISION = "rewardflow.data_revision"
"""Git commit of the repository that the data were read from; if it does not contain them, UNPINNED is set too."""
PLACEMENT = "rewardflow.placement"
"""On a flow's run: number of learners and engines, and of their GPUs; missing if one process did everything."""
SEED = "rewardflow.seed"
"""Seed of the run."""
BASE_VERSION = "rewardflow.base_version"
"""NAME/VERSION of the registered model that the policy was trained on from; missing if it began otherwise."""
BASE_SOURCE = "rewardflow.base_source"
"""Source of the base model that the policy was trained from: its name, type, package and the SHA-256 of its GGUF file;
missing for a base without such a record."""
MERGED_FROM = "rewardflow.merged_from"
"""On the run of a merge and on the version that it made: the models, the base, the method and its numbers."""
FROZEN = {"teacher": "rewardflow.teacher", "contrast": "rewardflow.contrast", "judge": "rewardflow.judge"}
"""Content hash of a model that a policy was distilled from or judged by, or the address of a server, by role."""

MODELS = "rewardflow.models"
"""On a flow's run: each frozen model that parts refer to by name, with the content hash of its folder."""

# On model versions.
WEIGHTS_SHA256 = "rewardflow.weights_sha256"
"""Content hash of the model folder: equal weights are registered once."""
RUN = "rewardflow.flow_run"
"""MLflow run of the whole flow that made the version."""
REWARD_MODEL_VERSION = "rewardflow.reward_model_version"
"""NAME/VERSION of the reward model that the policy was trained against."""
HELDOUT_ACCURACY = "rewardflow.heldout_accuracy"
"""Held-out accuracy as text: of pairs or steps for a reward model, of sampled and greedy answers for a policy."""
EVALUATION_RUN = "rewardflow.evaluation_run"
"""MLflow run of the evaluation on the validation split, which people may look at; not that on the gate's problems."""
IMPROVEMENT = "rewardflow.improvement"
"""Difference from the policy that it was compared with (champion or base), with its interval, as text."""
COMPARED_WITH = "rewardflow.compared_with"
"""Policy that it was compared with: the champion's version, or the base model."""
JUDGED_AGAINST = "rewardflow.judged_against"
"""Number of the version that was champion when it was judged; empty if there was none."""
DECISION = "rewardflow.decision"
"""Decision on the version: promoted, kept, refused or waiting (for a person's approval)."""
VERDICT_RECORD = "rewardflow.verdict_record"
"""The whole verdict as JSON: decision, reason, policy compared with, interval, checks, error budget, ruling."""
PAGE = "rewardflow.page"
"""Data of the version's page as JSON: name -> recipe, data, run and the like."""
PROMOTED_AT = "rewardflow.promoted_at"
"""When the version last became champion, UTC, or `noticed DATE` if the alias was set outside Rewardflow. An alias that
was set outside is noticed by the next command that writes to the registry."""
PROMOTED_BY = "rewardflow.promoted_by"
"""Why it became champion: gate, a person's command, or a rollback."""
BY_HAND = "rewardflow.by_hand"
"""The gate's judgement of a version that a person had made champion, as JSON."""
PUSHED = "rewardflow.pushed"
"""Address and commit of the repository on a hub that the version was last pushed to, with time and format."""
REPRODUCED = "rewardflow.reproduced"
"""Result of the last `rewardflow reproduce`: identical or the differences, with time, processor and person."""
PROBLEM = "rewardflow.approval_problem"
"""Why the decision that a person entered on MLflow's page was not carried out, and the text of that decision."""
AUDITED = "rewardflow.audited"
"""Number and hash of the newest entry in the audit log: on a version, of those about it; on a model, of all."""
REPLACED = "rewardflow.replaced"
"""The champion that this version replaced."""
REPLACED_BY = "rewardflow.replaced_by"
"""The version that replaced this one, and when."""

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
"""Facts about a version that are tags: at most ten, so that people read them. The last one is used in searches."""

REPORTS = "rewardflow.reports"
"""On a flow's run: the folder of an S3 bucket that its reports were uploaded to."""
REVIEWS = "rewardflow.reviews"
"""On a flow's run: artifacts with the pairs that people were asked to review, as a JSON list."""

# On the registered model.
LOOKS = "rewardflow.looks."
"""Prefix of the keys that count the looks at a gate split, followed by its digest: their number, their share of the
error budget, the comparison that was made at the last look, and a sketch of the problems."""
HISTORY = "rewardflow.champion_history"
"""The newest changes of the champion, about 40, newest first, one JSON object a line: time, version, reason."""
PROMOTING = "rewardflow.promoting"
"""The version that is being made champion, by which person and why, as JSON; it exists from just before the change of
the alias until the change is in the history."""
ANCHORED = "rewardflow.anchor"
"""The version on which Rewardflow last set or saw the alias anchor; a deleted alias is restored from it."""
WAITS_FOR_GATE = "rewardflow.waits_for_gate"
"""The version that a person made champion and that the gate has not judged yet, and the champion before it."""

# On the registered model that is an audit log.
AUDIT = "rewardflow.audit."
"""Prefix of the entries, followed by their number."""

# On the registered model that is a lock.
LOCK_TOKEN = "rewardflow.lock_token"
"""Token by which the holder of a promotion lock recognises it."""
LOCK_BEAT = "rewardflow.lock_beat"
"""A number that grows while the holder works."""

# On a flow's run.
CHAMPION_NOTICED = "rewardflow.champion_noticed"
"""What was done to the champion alias outside Rewardflow, if this run noticed it."""
CHAMPION_JUDGED = "rewardflow.champion_judged"
"""The gate's judgement of a champion that was set by hand, if this run judged it."""
