"""Long soundness runs: ``python -m benchmarks.trust {rules,fuzz,mutate}``."""
