"""Stages: bulk writes prepared in parts by many writers, and committed exactly once.

part ─▶ spool (checked, kept in a file that no reader sees) ─▶ commit ─▶ one frame: all records, the identity
"""
