"""Speed and memory of one thing at a time, in the same run as its comparison."""
