"""Files of a `load`: what is in them, what is wrong with one that is broken, and which are loaded already."""
