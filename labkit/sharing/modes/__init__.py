"""Ways to share a device: what each needs here, and what it gives each job."""
