"""Labels of the steps of solutions, for fitting a process reward model."""
