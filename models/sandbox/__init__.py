"""The sandbox: the only place where code that a model wrote is run."""
