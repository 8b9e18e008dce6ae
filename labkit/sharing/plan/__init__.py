"""What shares what: jobs, the rounds in which they run together, and the files that say so."""
