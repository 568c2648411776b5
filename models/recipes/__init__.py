"""A recipe: one YAML that names a part for every slot, checked whole before anything starts."""
