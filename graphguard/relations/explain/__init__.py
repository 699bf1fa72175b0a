"""What two values differ in, and by which weights: for messages."""
