"""Everything about a plan that can be known before anything starts."""
