"""What this machine is: devices, the catalogue of tiers, budgets, and the doctor who looks at all of it."""
