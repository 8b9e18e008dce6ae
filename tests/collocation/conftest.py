"""What the tests of collocation share lies beside this file: fakes of GPUs and their tools."""
