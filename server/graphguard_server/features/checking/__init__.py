"""Methods of our own, ``graphguard/...``: checks and their runs, pictures of proofs, processes."""
