"""Queues: topics whose records are jobs.

claim ─▶ registry ─▶ queue ─▶ dispatcher (when) ─▶ claims (which jobs) ─▶ leases (until when)
ack, nack, extend ─▶ queue.settle ─▶ settlement (one deletion for all acks) or leases
too many deliveries ─▶ dead_letters ─▶ redrive        lost jobs ─▶ losses ─▶ loss_journal
`jobs` reads live jobs and cuts the text of a job from its stored row.
"""
