"""From a broken claim to what is wrong with the program: where, and what is needed there."""
