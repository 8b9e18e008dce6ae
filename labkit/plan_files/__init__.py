"""Files in which a user plans runs: read so that each field knows its line, and refused with all mistakes at once."""
