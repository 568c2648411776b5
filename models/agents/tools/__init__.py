"""Tools that a policy may call in the environment `tools`."""
