"""The algebra that proves, :class:`~graphguard.relations.prove.normal_form.NormalForm`, and equality of its values where one form is not enough."""
