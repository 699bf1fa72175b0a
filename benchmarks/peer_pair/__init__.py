"""Verification tasks in the peer-pair/1 format, read and turned into captures."""
