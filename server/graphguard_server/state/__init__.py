"""What the server knows: projects, checks, their last results, and what edits do to them."""
