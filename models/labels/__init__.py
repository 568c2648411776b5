"""Labels of the steps of solutions, from which a process reward model is fitted."""
