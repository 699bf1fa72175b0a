"""What the prover's process answers, and what it keeps on disk."""
