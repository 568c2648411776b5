"""Small data sets of environments, committed as files next to their recipes, and the programs that make them."""
