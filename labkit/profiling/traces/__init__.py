"""A trace as frames: read from its file, nested, and what it says of devices, memory and time."""
