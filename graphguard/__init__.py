"""GraphGuard: proves that a distributed PyTorch program refines its sequential specification."""
