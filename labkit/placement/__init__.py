"""Where a DLRM's embedding tables live: main memory, a cache in front of it, a disk, another process."""
