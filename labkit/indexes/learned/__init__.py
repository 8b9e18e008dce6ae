"""A learned index in the way of ALEX (Ding et al., SIGMOD 2020): lines that predict places, and leaves with gaps."""
