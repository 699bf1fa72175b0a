"""What editors say of a workspace, its settings and its texts, and what they are told of its state."""
