"""Starts jobs together, watches them, and leaves nothing running whatever happens."""
