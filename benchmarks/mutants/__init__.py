"""Programs spoiled on purpose, so that the place, the rule and the number of defects are known by construction."""
