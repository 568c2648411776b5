"""Tools: what a policy may call in the environment `tools`."""
