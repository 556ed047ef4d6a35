"""The way out: from a cursor to rows.

cursor ─▶ tombstone (a gap to announce, where to start) ─▶ page (walk over runs) ─▶ render (rows as asked for)
scan:  the same questions in the same order, answered in Arrow columns
audit: why each seq that cannot be read any more is missing
"""
