"""What a training script tells labkit, through one small object: `labkit.Run`."""
