"""Stages: what graphs say before anything is evaluated: calls as data, where a program can be cut, which ranks and stages are alike.

``cuts`` and ``spelling`` are its ends; it knows no normal form but the windows between cuts.
"""
