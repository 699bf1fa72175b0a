"""One module per method: its name, its options, and the function that answers it from the last results; ``assembly`` finds them."""
