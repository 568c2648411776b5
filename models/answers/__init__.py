"""Final answers: reading the answer that a text states, and comparing it with the expected one."""
