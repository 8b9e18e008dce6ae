"""Processes of ours and what they start: how they find each other, and how all of them end."""
