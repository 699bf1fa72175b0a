"""The way from a check to its report, without input or output of its own.

Main function: ``check_steps``, which asks others for captures and proofs and goes on with their answers.
"""
