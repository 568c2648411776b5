"""Reading and writing of MLflow's runs, models and registry. No other package imports MLflow.

store     the server and its retries       runs      flows' runs and their steps' runs, and those of dead processes
metrics   curves that survive an outage    records   data sets, tables, figures, descriptions
registry  model versions                   aliases   promotion and rollback
lineage   the origin of a version          tags      the names of all tags
mirrors   copies for TensorBoard, Weights & Biases and Trackio
"""
