"""Several jobs on one device: plans, modes, memory estimates, the launcher, its verdict, packing and faults."""
