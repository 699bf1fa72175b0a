"""Runs: graphs on numbers, operator by operator, and the inputs to try.

``replay`` runs one program alone or all ranks together, ``operators`` one call, ``draws`` makes inputs; it knows no promise.
"""
