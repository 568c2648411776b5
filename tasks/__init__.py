"""The steps of the pipeline, one file each: load inputs, call models/, log, hand on."""
