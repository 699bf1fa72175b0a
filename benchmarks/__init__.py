"""Benchmarks and trust commands: figures are ratios measured in one run."""
