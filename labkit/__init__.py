"""labkit: what does it cost to reach this accuracy, on this hardware, run this way?"""

__version__ = "0.1.0"
