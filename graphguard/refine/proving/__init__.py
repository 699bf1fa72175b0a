"""Ways to a proof: stage by stage, as a whole, with more written out, or from what an earlier proof of a like program left.

``attempts`` has their order, ``memo`` what proofs remember of each other.
"""
