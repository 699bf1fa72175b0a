"""Values and what is known of them: the algebra of rules, its normal form, plain numbers, and relations as data and text."""
