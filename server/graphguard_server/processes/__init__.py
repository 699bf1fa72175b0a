"""Other processes that record and prove, and when they are asked."""
