"""What to change in a slow step, and how much faster training can become by it at most."""
