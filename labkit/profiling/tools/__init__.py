"""Profilers that are programs of their own: how each is called, what hinders it here, and what it wrote."""
