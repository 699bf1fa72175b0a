"""The place of a defect, found by interventions: which value of the ranks' programs, put right, puts failing outputs right?

No list of mistakes is asked.  :class:`~graphguard.diagnose.localise.search.Search` finds :class:`~graphguard.diagnose.localise.mends.Mend`; ``lines`` says where in the user's code, ``telling`` in which words.
Numbers serve interventions; what is right already is asked of the proof first.
"""
