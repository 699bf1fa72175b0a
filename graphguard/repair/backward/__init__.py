"""Defects of gradients: those that stop, that nothing reads, or that the program asks for in vain."""
