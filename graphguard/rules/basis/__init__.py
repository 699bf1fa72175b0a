"""What rules are made of: the table that they register in, operands and element types, maps of indices."""
