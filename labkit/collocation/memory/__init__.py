"""How much memory a job takes: its first steps tried in a process, or for a job too large for that a formula."""
