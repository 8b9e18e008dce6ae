"""The kit's own jobs: training scripts that anyone can read, copy and change."""
