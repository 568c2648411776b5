"""The parts that a recipe names, one package per slot, and what several of them share."""
