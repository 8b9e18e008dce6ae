"""The same mathematics at the machine's limit: a file an idea, each beside the plain PyTorch that it equals."""
