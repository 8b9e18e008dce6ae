"""The tour: every job under every budget of this machine, then one table and one page."""
