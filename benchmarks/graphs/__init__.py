"""Small verification tasks of our own in the peer-pair/1 format, so that the path is always run."""
