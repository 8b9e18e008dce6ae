"""How much memory a job will take, known before it runs: three estimates, and what they are worth."""
