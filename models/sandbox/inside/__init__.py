"""Code that runs inside the jail: it uses the standard library alone, so that forks are cheap and little can be
reached."""
