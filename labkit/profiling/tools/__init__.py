"""Profilers that are programs of their own: their command lines, what hinders them here, and their output as frames."""
