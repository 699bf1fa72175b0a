"""The rules, one file for each of the things that they are about; ``rewrite.table`` says which are applied at which stage, and in which order."""
