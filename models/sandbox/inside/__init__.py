"""Code that runs inside the jail: the standard library alone, so that forks are cheap and little can be reached."""
