"""Records steps: which ones, of what, and into which run folder."""
