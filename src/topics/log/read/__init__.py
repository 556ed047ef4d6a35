"""The way out: from a cursor to rows.

cursor ─▶ page (gap to announce, where to start) ─▶ runs ─▶ render (rows as this reader wants them)
scan:  the same questions in the same order, answered in Arrow columns
audit: why each seq that cannot be read any more is missing
"""
