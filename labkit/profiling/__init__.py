"""Where the time of a training step goes: traces of a profiler, read into frames."""
