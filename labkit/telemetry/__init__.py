"""What the machine did while a run went on, sampled by a process of its own."""
