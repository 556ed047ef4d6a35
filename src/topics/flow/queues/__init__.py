"""Queues: topics whose records are jobs.

claim ─▶ registry ─▶ queue ─▶ claims (which jobs, for which claim) ─▶ leases (until when)
ack   ─▶ queue ─▶ one deletion for all        nack, extend ─▶ leases
too many deliveries ─▶ dead_letters           `jobs` cuts the text of a job from its stored row
"""
