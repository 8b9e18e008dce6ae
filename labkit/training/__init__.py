"""One loop for every job: train to a target, and record what it took."""
