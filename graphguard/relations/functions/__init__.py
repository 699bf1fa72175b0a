"""Functions of terms: exponentials, integers, comparisons, maxima, choices, places, sorted lines; and operations on whole values, piece by piece."""
