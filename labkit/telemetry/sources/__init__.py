"""Where counters come from: a file a source, and the ladder that takes the best of them for each counter."""
