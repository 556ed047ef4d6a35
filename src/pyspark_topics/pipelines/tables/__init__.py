"""Tables beside topics: whether one fits and gives back what was written, and those that routes join with."""
