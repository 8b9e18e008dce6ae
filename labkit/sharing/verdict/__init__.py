"""What sharing a device came to: the jobs' speeds, the rounds, the modes, and which one to use."""
