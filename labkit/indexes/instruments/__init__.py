"""What counts the cost of a request: a clock, the CPU's own counters, callgrind, and a replay of all accesses."""
