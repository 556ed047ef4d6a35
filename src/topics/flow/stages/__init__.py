"""Stages: bulk writes prepared in parts by many writers, and committed exactly once.

part ─▶ parts (checked) ─▶ spool (kept in a file that no reader sees)
commit ─▶ stages ─▶ parts (all rows, by topic) ─▶ one frame: the records, and the identity of the commit
"""
