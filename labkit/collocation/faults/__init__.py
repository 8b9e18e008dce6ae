"""The fault lab: a client that fails, and what becomes of those that share its device."""
