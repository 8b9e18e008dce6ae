"""Predicts what training takes, from what a machine was measured to do."""
