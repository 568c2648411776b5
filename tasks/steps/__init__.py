"""The steps of the pipeline, one file each, in the order of a run.

prepare_data  validate_data  warm_start  label_pairs  label_steps  fit_reward_model  fit_process_model  report_reward
fine_tune  merge_policies  evaluate  evaluate_strategy  judge_champion  promote  upload_reports
"""
