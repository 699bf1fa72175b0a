"""All ranks of a job evaluated at once: mesh axes along which ranks run one program are leading dims, *digits*, of the values.

Main type: :class:`~graphguard.refine.digits.programs.Quotient`, the programs that are left.  Whatever is not followed raises ``Unsupported``, and the ordinary proof is made instead:
digits prove or say nothing.  Only ``refine/proving`` comes in.
"""
