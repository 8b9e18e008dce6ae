"""Click logs and speech: generate, fetch, prepare, load."""
