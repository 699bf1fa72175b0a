"""Random programs, each run on real gloo processes and through the product; verdicts against what really happens."""
