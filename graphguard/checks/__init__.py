"""What users declare, the relations of inputs and parameters, and the way from a check to its report."""
