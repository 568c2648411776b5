"""Pages, names and figures of runs and versions: plain data to text."""
