"""The steps of the pipeline, one file each, in the order of a run.

prepare_data  validate_data  warm_start  fit_reward_model  fine_tune  evaluate  judge_champion  promote  upload_reports
"""
