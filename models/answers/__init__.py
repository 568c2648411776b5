"""Is it right? Reading the answer that a text states, and comparing it with the expected one."""
