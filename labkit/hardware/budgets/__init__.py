"""Budgets: what part of this machine a run may use, and what makes that bind."""
